// Linear layers and experts with products of 8-bit factors, and the scales from step to step.
//
// Expected results are bf16 products of the numbers that 8 bits hold, without a scope.
#include "autograd/fp8.h"

#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "autograd/experts.h"
#include "autograd/operations.h"
#include "kernels/bias/op.h"
#include "kernels/cast/op.h"
#include "kernels/dispatch/op.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/linear/op.h"
#include "kernels/observer.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::OwnedParameter;
using test::same_bits;

constexpr std::int64_t kRows = 16, kInputs = 16, kOutputs = 32;

OwnedParameter parameter(const std::string& name, const Shape& shape) {
  return {name, shape, 1.0, DType::bf16};
}

/// The numbers that this format holds of x.
Tensor rounded(const Tensor& x, DType format, double scale) {
  const auto number = [](double value) { return Tensor::full({1}, DType::f32, value); };
  const Tensor y = Tensor::zeros(x.shape(), format),
               expanded = test::poisoned(x.shape(), x.dtype());
  fp8_quantize(y, {}, x, number(scale), number(0.0));
  fp8_expand(expanded, y, number(1 / scale));
  return expanded;
}

/// The scale that Fp8State finds for x.
double scale_for(const Tensor& x, DType format) {
  double largest = 0.0;
  for (const double value : test::to_doubles(x)) largest = std::max(largest, std::abs(value));
  const double limit = format == DType::e4m3 ? 448.0 : 57344.0;
  return std::exp2(std::floor(std::log2(limit / largest)));
}
Tensor rounded(const Tensor& x, DType format) {
  return rounded(x, format, scale_for(x, format));
}

/// The same bits; on a GPU, whose 8-bit sums may have fewer bits, the same up to them.
bool same_result(const Tensor& a, const Tensor& b) {
  if (!test::kOnGpu) return same_bits(a, b);
  return test::relative_error(test::to_doubles(a), test::to_doubles(b)) < 0x1p-7;
}

struct Results {
  Tensor y, dx;
};

/// The copies that each rounding writes, and the number of tensors that are transposed later.
struct Seen : OperationObserver {
  std::vector<std::string> rounded;
  int transposed = 0;
  void before(std::string_view operation, std::span<const Tensor> arguments) override {
    transposed += operation == "fp8_transpose";
    if (operation != "fp8_quantize") return;
    const bool both = is_fp8(arguments[1].dtype());
    const Shape &first = arguments[0].shape(), &x = arguments[both ? 2 : 1].shape();
    rounded.emplace_back(both ? "both" : first == x ? "rows" : "columns");
  }
  void after(std::string_view, std::span<const Tensor>) override {}
};

/// Forward and backward in the scope of `fp8`, if it is given.
template <typename Layer>
Results run(Fp8State* fp8, const Tensor& x, const Tensor& dy, const Layer& layer) {
  std::optional<Fp8Scope> scope;
  if (fp8 != nullptr) scope.emplace(*fp8);
  const Variable leaf = Variable::leaf(x), y = layer(leaf);
  backward(y, dy);
  return {y.data(), leaf.gradient()};
}

}  // namespace

TEST_CASE("fp8: a linear layer multiplies rounded inputs, weights and gradients") {
  const test::Rank rank;
  const Tensor x = normal_tensor({kRows, kInputs}, DType::bf16, "x", 0.01),
               dy = normal_tensor({kRows, kOutputs}, DType::bf16, "dy", 1e-7),
               residual = normal_tensor({kRows, kOutputs}, DType::bf16, "residual");
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    const Transpose transpose = out_in ? Transpose::yes : Transpose::no;
    OwnedParameter weight =
        parameter("weight", out_in ? Shape{kOutputs, kInputs} : Shape{kInputs, kOutputs});
    OwnedParameter bias = parameter("bias", {kOutputs});
    for (const DType gradients : {DType::e5m2, DType::e4m3}) {
      CAPTURE(out_in, name_of(gradients));
      Fp8State fp8({weight.parameter}, {.gradients = gradients, .history = 2});
      const auto layer = [&](const Variable& input) {
        return linear(input, weight.parameter, bias.parameter, layout, Variable(residual));
      };
      const auto check_step = [&](const Tensor& x8, const Tensor& w8, const Tensor& dy8) {
        const Results found = run(&fp8, x, dy, layer);
        const Tensor y = test::poisoned(dy.shape(), DType::bf16),
                     dx = test::poisoned(x.shape(), DType::bf16),
                     dweight = test::poisoned(weight.data.shape(), DType::bf16),
                     dbias = test::poisoned({kOutputs}, DType::bf16);
        linear_forward(y, x8, w8, transpose, bias.data, residual);
        linear_backward_input(dx, dy8, w8, transpose);
        linear_backward_weight(dweight, dbias, x8, dy8, transpose, Accumulate::no, Accumulate::no);
        CHECK(same_result(found.y, y));
        CHECK(same_result(found.dx, dx));
        CHECK(same_result(weight.gradient, dweight));
        CHECK(same_result(bias.gradient, dbias));
        weight.parameter.reset_gradient();
        bias.parameter.reset_gradient();
        fp8.end_step();
        return found;
      };
      // The first step has the scales of the largest magnitudes 448, 1 and 2^-6.
      check_step(rounded(x, DType::e4m3, 1.0), rounded(weight.data, DType::e4m3, 256.0),
                 rounded(dy, gradients, gradients == DType::e5m2 ? 0x1p21 : 0x1p14));
      const Results second = check_step(rounded(x, DType::e4m3), rounded(weight.data, DType::e4m3),
                                        rounded(dy, gradients));
      const Results plain = run(nullptr, x, dy, layer);
      CHECK_FALSE(same_bits(second.y, plain.y));
      CHECK_FALSE(same_bits(second.dx, plain.dx));
      weight.parameter.reset_gradient();
      bias.parameter.reset_gradient();
    }
  }
}

TEST_CASE("fp8: both layers of a feed-forward network multiply rounded factors") {
  const test::Rank rank;
  const Tensor x = normal_tensor({kRows, kInputs}, DType::bf16, "x"),
               dy = normal_tensor({kRows, kInputs}, DType::bf16, "dy", 1e-5);
  for (const bool gated : {false, true}) {
    CAPTURE(gated);
    const std::int64_t pre_width = gated ? 2 * kOutputs : kOutputs;
    OwnedParameter fc = parameter("fc", {pre_width, kInputs}),
                   proj = parameter("proj", {kInputs, kOutputs});
    Fp8State fp8({fc.parameter, proj.parameter}, {});
    const auto layer = [&](const Variable& input) {
      return gated ? swiglu_mlp(input, fc.parameter, Parameter(), proj.parameter, Parameter())
                   : gelu_mlp(input, fc.parameter, Parameter(), proj.parameter, Parameter(),
                              WeightLayout::out_in);
    };
    // Two steps, so that the magnitudes inside are those of rounded factors; the third is checked.
    for (int step = 0; step < 2; ++step) {
      run(&fp8, x, dy, layer);
      fp8.end_step();
      fc.parameter.reset_gradient();
      proj.parameter.reset_gradient();
    }
    const Results results = run(&fp8, x, dy, layer);

    const Tensor x8 = rounded(x, DType::e4m3), fc8 = rounded(fc.data, DType::e4m3),
                 proj8 = rounded(proj.data, DType::e4m3), dy8 = rounded(dy, DType::e5m2);
    const Tensor pre = test::poisoned({kRows, pre_width}, DType::bf16),
                 hidden = test::poisoned({kRows, kOutputs}, DType::bf16),
                 y = test::poisoned(x.shape(), DType::bf16), dpre = pre.clone(),
                 dhidden = hidden.clone(), dx = y.clone(), dfc = fc.data.clone(),
                 dproj = proj.data.clone();
    const auto round_as = [&](const Tensor& values, const Parameter& weight, Fp8Role role) {
      const auto place = *fp8.place(weight, role);
      CHECK(place.inverse.item<float>() == 1.0f / place.scale.item<float>());
      values.copy_from(rounded(values, place.format, place.scale.item<float>()));
    };
    if (gated) {
      linear_swiglu_forward(hidden, pre, x8, fc8, Transpose::yes, {});
    } else {
      linear_forward(pre, x8, fc8, Transpose::yes, {});
      gelu_forward(hidden, pre, GeluForm::tanh);
    }
    round_as(hidden, proj.parameter, Fp8Role::input);
    linear_forward(y, hidden, proj8, Transpose::yes, {});
    if (gated) {
      swiglu_linear_backward_input(dpre, dhidden, dy8, proj8, Transpose::yes, pre);
    } else {
      linear_backward_input(dpre, dy8, proj8, Transpose::yes);
      gelu_backward(dpre, dpre, pre, GeluForm::tanh);
    }
    round_as(dpre, fc.parameter, Fp8Role::gradient);
    linear_backward_input(dx, dpre, fc8, Transpose::yes);
    linear_backward_weight(dproj, {}, hidden, dy8, Transpose::yes, Accumulate::no, Accumulate::no);
    linear_backward_weight(dfc, {}, x8, dpre, Transpose::yes, Accumulate::no, Accumulate::no);
    CHECK(same_result(results.y, y));
    CHECK(same_result(results.dx, dx));
    CHECK(same_result(proj.gradient, dproj));
    CHECK(same_result(fc.gradient, dfc));
  }
}

TEST_CASE("fp8: experts multiply rounded rows, weights and gradients") {
  const test::Rank rank;
  constexpr std::int64_t N = 12, E = 4, k = 2, F = 16, P = N * k;
  const Tensor x = normal_tensor({N, kInputs}, DType::bf16, "x"),
               dy = normal_tensor({N, kInputs}, DType::bf16, "dy", 1e-5);
  const auto route_of = [&] {
    const Variable logits(normal_tensor({N, E}, DType::bf16, "logits"));
    Routing routing = route(logits, {.experts_per_token = k, .bias = {}});
    routing.weights = Variable::leaf(routing.weights.data());
    return routing;
  };
  for (const WeighedInput weighed : {WeighedInput::down, WeighedInput::gate_up}) {
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      const bool out_in = layout == WeightLayout::out_in,
                 weighs_down = weighed == WeighedInput::down;
      CAPTURE(out_in, weighs_down);
      OwnedParameter gate_up = parameter(
                         "gate_up", out_in ? Shape{E, 2 * F, kInputs} : Shape{E, kInputs, 2 * F}),
                     down = parameter("down", out_in ? Shape{E, kInputs, F} : Shape{E, F, kInputs});
      Fp8State fp8({gate_up.parameter, down.parameter}, {});
      Routing routing = route_of();
      const auto layer = [&](const Variable& input) {
        routing = route_of();
        return experts(input, routing, gate_up.parameter, down.parameter, {layout, weighed});
      };
      // Two steps, so that the magnitudes inside are those of rounded factors; the third is checked.
      for (int step = 0; step < 2; ++step) {
        run(&fp8, x, dy, layer);
        fp8.end_step();
        gate_up.parameter.reset_gradient();
        down.parameter.reset_gradient();
      }
      const Results results = run(&fp8, x, dy, layer);

      const auto round_as = [&](const Tensor& values, const OwnedParameter& weight, Fp8Role role) {
        const auto place = *fp8.place(weight.parameter, role);
        return rounded(values, place.format, place.scale.item<float>());
      };
      const auto empty = [](const Shape& shape) { return test::poisoned(shape, DType::bf16); };
      const Tensor &places = routing.order.places, &offsets = routing.order.offsets,
                   weights = routing.weights.data();
      const Tensor of_down = weighs_down ? weights : Tensor();
      const Transpose forward = out_in ? Transpose::yes : Transpose::no;
      const Tensor gate_up8 = rounded(gate_up.data, DType::e4m3),
                   down8 = rounded(down.data, DType::e4m3);
      const Tensor rows = empty({P, kInputs}), pre = empty({P, 2 * F}), h = empty({P, F}),
                   y_rows = rows.clone(), y = empty(x.shape());
      dispatch(rows, x, places, weighs_down ? Tensor() : weights);
      const Tensor rows8 = rounded(rows, DType::e4m3);
      grouped_matmul_swiglu(h, pre, rows8, gate_up8, offsets, forward);
      grouped_matmul(y_rows, round_as(h, down, Fp8Role::input), down8, offsets, forward);
      combine(y, y_rows, places, of_down);
      CHECK(same_result(results.y, y));

      const Tensor dy_rows = empty({P, kInputs}), drows = dy_rows.clone(), dh = empty({P, F}),
                   dweights = empty({N, k}), dx = empty(x.shape()), dgate_up = gate_up.data.clone(),
                   ddown = down.data.clone();
      dispatch(dy_rows, dy, places);
      const Tensor dy8 = rounded(dy_rows, DType::e5m2);
      grouped_matmul(dh, dy8, down8, offsets, opposite(forward));
      weighed_swiglu_backward(h, weighs_down ? dweights : Tensor(), first_half(pre),
                              second_half(pre), dh, first_half(pre), second_half(pre),
                              weighs_down ? places : Tensor(), of_down);
      const Tensor h8 = round_as(h, down, Fp8Role::input),
                   pre8 = round_as(pre, gate_up, Fp8Role::gradient);
      grouped_matmul(drows, pre8, gate_up8, offsets, opposite(forward));
      grouped_matmul_weight(ddown, out_in ? dy8 : h8, out_in ? h8 : dy8, offsets);
      grouped_matmul_weight(dgate_up, out_in ? pre8 : rows8, out_in ? rows8 : pre8, offsets);
      if (!weighs_down) {
        dispatch(rows, x, places);
        weigh_backward(drows, dweights, drows, rows, places, weights);
      }
      combine(dx, drows, places);
      CHECK(same_result(results.dx, dx));
      CHECK(same_result(gate_up.gradient, dgate_up));
      CHECK(same_result(down.gradient, ddown));
      CHECK(same_result(routing.weights.gradient(), dweights));
      CHECK_FALSE(same_bits(run(nullptr, x, dy, layer).y, y));
    }
  }
}

TEST_CASE("fp8: joined weights have the scale of all parts, and others are not rounded") {
  const test::Rank rank;
  OwnedParameter q = parameter("q", {8, kInputs}), k = parameter("k", {16, kInputs}),
                 other = parameter("other", {8, kInputs});
  k.data.copy_from(normal_tensor({16, kInputs}, DType::bf16, "k", 100.0));
  const JoinedParameters joined({q.parameter, k.parameter});
  Fp8State fp8({q.parameter, k.parameter}, {});
  const Tensor x = normal_tensor({kRows, kInputs}, DType::bf16, "x");
  {
    const Fp8Scope scope(fp8);
    linear(Variable(x), joined, Parameter());
    linear(Variable(x), k.parameter, Parameter());
  }
  fp8.end_step();
  const auto scale = [&](const Parameter& weight) {
    return fp8.place(weight, Fp8Role::weight)->scale.item<float>();
  };
  CHECK(scale(q.parameter) < 16.0f);  // as the numbers of k need it
  CHECK(scale(q.parameter) == scale(k.parameter));
  CHECK_FALSE(fp8.place(other.parameter, Fp8Role::weight).has_value());
  const Fp8Scope scope(fp8);
  const Factor plain = weight_factor(other.parameter, DType::bf16);
  CHECK_FALSE(plain.is_fp8());
  CHECK(same_bits(plain.values, other.data));
}

TEST_CASE("fp8: weights that are there in 8 bits are used as they are, alone and in a join") {
  const test::Rank rank;
  OwnedParameter q = parameter("q", {8, kInputs}), k = parameter("k", {16, kInputs});
  const JoinedParameters joined({q.parameter, k.parameter});
  Fp8State fp8({q.parameter, k.parameter}, {});
  const Tensor x = normal_tensor({kRows, kInputs}, DType::bf16, "x");
  const auto results = [&](const JoinedParameters& weight) {
    const Fp8Scope scope(fp8);
    return linear(Variable(x), weight, Parameter()).data();
  };
  const Tensor of_both = results(joined), of_q = results(q.parameter);
  const Tensor largest = fp8.largest().clone();
  fp8.forget_largest();
  // In two parts, as two ranks do; from f32 masters.
  const auto round = [](OwnedParameter& weight) {
    const Tensor numbers = Tensor::zeros(weight.data.shape(), DType::e4m3);
    const Tensor wide = Tensor::zeros(weight.data.shape(), DType::f32);
    cast(wide, weight.data);
    for (const auto& [begin, end] : {std::pair(0, 5), std::pair(5, 8)}) {
      weight.parameter.round(numbers.slice(begin, end), wide.slice(begin, end));
    }
    weight.parameter.round(numbers.slice(8, numbers.size(0)), wide.slice(8, numbers.size(0)));
    weight.parameter.open(numbers);
  };
  round(q);
  CHECK(same_bits(results(joined), of_both));  // with k in bf16
  round(k);
  CHECK(same_bits(results(joined), of_both));
  CHECK(same_bits(results(q.parameter), of_q));
  CHECK(same_bits(fp8.largest(), largest));
  REQUIRE_THROWS_WITH(weight_factor(q.parameter, DType::bf16),
                      Contains("a product with 'q' has 8-bit factors; it needs an Fp8Scope"));
  OwnedParameter other = parameter("other", {8, kInputs});
  REQUIRE_THROWS_WITH(other.parameter.round(q.parameter.data(), other.data),
                      Contains("parameter 'other' has no scale to round it to e4m3"));
}

TEST_CASE("fp8: one pass writes the copies that products read, with the bits of rows") {
  const test::Rank rank;
  std::int64_t rows = kRows;
  const auto check = [&](const JoinedParameters& weight, const std::vector<Tensor>& gradients,
                         WeightLayout layout, const std::vector<std::string>& on_gpu,
                         int transposed_on_gpu) {
    const Tensor x = normal_tensor({rows, kInputs}, DType::bf16, "x"),
                 dy = normal_tensor({rows, kOutputs}, DType::bf16, "dy", 1e-5);
    const std::vector<Parameter>& parts = weight.parts();
    Fp8State fp8(parts, {});
    Seen seen;
    const Results found = [&] {
      const ObserverScope scope(seen);
      return run(&fp8, x, dy,
                 [&](const Variable& input) { return linear(input, weight, Parameter(), layout); });
    }();
    CHECK(seen.rounded ==
          (test::kOnGpu ? on_gpu : std::vector<std::string>(on_gpu.size(), "rows")));
    CHECK(seen.transposed == (test::kOnGpu ? transposed_on_gpu : 0));

    const auto rows_of = [&](const Tensor& values, Fp8Role role) {
      const auto place = *fp8.place(parts.front(), role);
      if (is_fp8(values.dtype())) return Factor(values, place.inverse);
      const Tensor rows = Tensor::zeros(values.shape(), place.format);
      fp8_quantize(rows, {}, values, place.scale, Tensor::zeros({1}, DType::f32));
      return Factor(rows, place.inverse);
    };
    const Transpose transpose = layout == WeightLayout::out_in ? Transpose::yes : Transpose::no;
    const Factor x8 = rows_of(x, Fp8Role::input), w8 = rows_of(weight.data(), Fp8Role::weight),
                 dy8 = rows_of(dy, Fp8Role::gradient);
    const Tensor y = test::poisoned(dy.shape(), DType::bf16),
                 dx = test::poisoned(x.shape(), DType::bf16),
                 dweight = test::poisoned(weight.held_shape(), DType::bf16);
    linear_forward(y, x8, w8, transpose, {});
    linear_backward_input(dx, dy8, w8, transpose);
    linear_backward_weight(dweight, {}, x8, dy8, transpose, Accumulate::no, Accumulate::no);
    CHECK(same_bits(found.y, y));
    CHECK(same_bits(found.dx, dx));
    std::int64_t first = 0;
    for (const Tensor& gradient : gradients) {
      CHECK(same_bits(gradient, dweight.slice(first, first + gradient.size(0))));
      first += gradient.size(0);
    }
    for (const Parameter& part : parts) part.reset_gradient();
  };
  OwnedParameter weight = parameter("weight", {kOutputs, kInputs}),
                 stored_in_out = parameter("in_out", {kInputs, kOutputs});
  const std::vector<std::string> out_in = {"both", "rows", "both", "columns"},
                                 in_out = {"both", "columns", "both", "rows"};
  check(weight.parameter, {weight.gradient}, WeightLayout::out_in, out_in, 0);
  check(stored_in_out.parameter, {stored_in_out.gradient}, WeightLayout::in_out, in_out, 0);

  // Neighbours are rounded in one pass.
  OwnedParameter q = parameter("q", {8, kInputs}), k = parameter("k", {24, kInputs});
  const JoinedParameters joined({q.parameter, k.parameter});
  check(joined, {q.gradient, k.gradient}, WeightLayout::out_in,
        {"both", "rows", "rows", "both", "rows", "rows"}, 1);
  const Tensor together = normal_tensor({kOutputs, kInputs}, DType::bf16, "together");
  q.parameter.open(together.slice(0, 8));
  k.parameter.open(together.slice(8, kOutputs));
  check(joined, {q.gradient, k.gradient}, WeightLayout::out_in, out_in, 0);

  // No 8-bit product is the gradient of the weight: its rows do not suit, or it is frozen.
  const std::vector<std::string> rows_alone = {"rows", "rows", "rows", "columns"};
  rows = kRows + 8;
  check(weight.parameter, {weight.gradient}, WeightLayout::out_in, rows_alone, 0);
  rows = kRows;
  weight.parameter.set_trainable(false);
  check(weight.parameter, {}, WeightLayout::out_in, rows_alone, 0);
  weight.parameter.set_trainable(true);

  // A weight that is there in 8 bits.
  Fp8State fp8({weight.parameter}, {});
  const Tensor numbers = Tensor::zeros(weight.data.shape(), DType::e4m3);
  weight.parameter.round(numbers, weight.data);
  weight.parameter.open(numbers);
  check(weight.parameter, {weight.gradient}, WeightLayout::out_in, {"both", "both"}, 1);
}

TEST_CASE("fp8: the memory of copies: one of an input until backward, and none without backward") {
  const test::Rank rank;
  Allocator& allocator = context().allocator();
  const auto live = [&] { return allocator.account()[Category::activations]; };
  const auto allocated = [](std::int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const std::int64_t inputs = kRows * kInputs, outputs = kRows * kOutputs;
  OwnedParameter fc = parameter("fc", {kOutputs, kInputs}),
                 proj = parameter("proj", {kInputs, kOutputs});
  Fp8State fp8({fc.parameter, proj.parameter}, {});
  const Fp8Scope scope(fp8);
  const Variable x = Variable::leaf(normal_tensor({kRows, kInputs}, DType::bf16, "x"));
  const auto mlp = [&] {
    return gelu_mlp(x, fc.parameter, Parameter(), proj.parameter, Parameter(),
                    WeightLayout::out_in);
  };
  const std::int64_t before = live().current;
  {
    Seen seen;
    const ObserverScope observed(seen);
    const NoGradient no_gradient;
    const Variable y = mlp();
    CHECK(live().current - before == allocated(2 * inputs));
    CHECK(seen.rounded == std::vector<std::string>(4, "rows"));
  }
  {
    const Variable y = mlp();
    // y, the result of the first layer, and both layers' inputs in 8 bits.
    CHECK(live().current - before ==
          allocated(2 * inputs) + allocated(2 * outputs) + allocated(inputs) + allocated(outputs));
  }
  const Variable y = linear(x, fc.parameter, Parameter());
  const Tensor dy = normal_tensor({kRows, kOutputs}, DType::bf16, "dy");
  const std::int64_t kept = live().current;
  allocator.reset_peaks();
  backward(y, dy);
  // dy in 8 bits, and then either its columns or the gradient of x.
  CHECK(live().peak - kept == 2 * allocated(outputs));
}

TEST_CASE("fp8: an evaluation rounds and leaves the state as it is") {
  const test::Rank rank;
  OwnedParameter weight = parameter("weight", {kOutputs, kInputs});
  Fp8State fp8({weight.parameter}, {});
  const auto result = [&](double factor, Fp8Scope::Keeps keeps) {
    const Fp8Scope scope(fp8, keeps);
    const Tensor x = normal_tensor({kRows, kInputs}, DType::bf16, "x", factor);
    return linear(Variable(x), weight.parameter, Parameter()).data();
  };
  result(1.0, Fp8Scope::Keeps::largest);
  fp8.end_step();
  const Tensor expected = result(1.0, Fp8Scope::Keeps::largest);
  const Tensor largest = fp8.largest().clone();
  CHECK(same_bits(result(1.0, Fp8Scope::Keeps::nothing), expected));
  result(100.0, Fp8Scope::Keeps::nothing);
  CHECK(same_bits(fp8.largest(), largest));
}

TEST_CASE("fp8: a history makes the scales again, and the tensor that was cut most is named") {
  const test::Rank rank;
  OwnedParameter first = parameter("first", {4, 4}), second = parameter("second", {4, 4});
  const auto make = [&] {
    return std::make_unique<Fp8State>(std::vector{first.parameter, second.parameter},
                                      Fp8Options{.history = 3});
  };
  const auto one = make(), two = make();
  one->largest().copy_from(Tensor::from(std::vector{1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {6}));
  one->end_step();
  // The guesses allow inputs to 448, weights to 1.75 and gradients to 1.75 / 64.
  CHECK(one->cut_of(one->excess().to_vector<float>()).tensors == 4);
  two->set_history(one->history().to_vector<float>());
  // Allowed are 448 / 2^7 = 3.5 and 448 / 2^6 = 7, and 57344 / 2^13 = 7.
  for (const auto* state : {one.get(), two.get()}) {
    CHECK(state->place(second.parameter, Fp8Role::input)->scale.item<float>() == 0x1p6f);
    CHECK(state->place(second.parameter, Fp8Role::gradient)->scale.item<float>() == 0x1p13f);
  }
  two->largest().copy_from(Tensor::from(std::vector{1.75f, 3.5f, 3.0f, 7.0f, 8.0f, 14.0f}, {6}));
  two->end_step();
  const Fp8Cut cut = two->cut_of(two->excess().to_vector<float>());
  CHECK(cut.tensors == 2);
  CHECK(cut.name == "second, gradient");
  CHECK(cut.ratio == 2.0f);
  CHECK_THROWS_WITH(two->set_history({1.0f}),
                    Contains("a history of 1 numbers; this model's has 18"));
  two->set_history(std::vector<float>(18));
  CHECK(two->place(second.parameter, Fp8Role::weight)->scale.item<float>() == 256.0f);  // a guess
}

}  // namespace tessera
