// Linear layers with products of 8-bit factors that have scales of blocks.
//
// Expected results are bf16 products of the numbers that the 8 bits hold, without a scope.
#include <catch2/catch.hpp>

#include "autograd/context_axis.h"
#include "autograd/engine.h"
#include "autograd/fp8.h"
#include "autograd/operations.h"
#include "kernels/add/op.h"
#include "kernels/bias/op.h"
#include "kernels/linear/op.h"
#include "kernels/observer.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::OwnedParameter;
using test::same_bits;

/// More than a block each, and no multiple of one.
constexpr std::int64_t kRows = 192, kInputs = 144, kOutputs = 272;

OwnedParameter parameter(const std::string& name, const Shape& shape) {
  return {name, shape, 1.0, DType::bf16};
}

Fp8State state_of(const std::vector<Parameter>& weights, DType gradients = DType::e5m2) {
  return {weights, {.gradients = gradients, .scales = Fp8Scales::blocks}};
}

/// Normal numbers. Their rows and columns differ in magnitude, so every block has its own scale.
Tensor values(const Shape& shape, const std::string& name, double scale = 1.0) {
  std::vector<double> numbers = test::to_doubles(normal_tensor(shape, DType::f32, name, scale));
  for (std::int64_t i = 0; i < std::ssize(numbers); ++i) {
    numbers[i] *= std::exp2(static_cast<double>((i / shape[1] * 5 + i % shape[1] / 16 * 3) % 11));
  }
  return test::tensor_of(numbers, shape, DType::bf16);
}

/// The numbers that the format holds of x [N, C], with these blocks of its rows, or of its columns.
Tensor rounded(const Tensor& x, DType format, Fp8Blocks blocks, Transpose columns = Transpose::no) {
  const bool by_columns = columns == Transpose::yes;
  const std::int64_t rows = x.size(by_columns ? 1 : 0), depth = x.size(by_columns ? 0 : 1);
  const Tensor numbers = Tensor::zeros({rows, depth}, format),
               inverse = Tensor::zeros(fp8_scales_shape(blocks, rows, depth), DType::f32),
               turned = Tensor::zeros(x.shape(), format),
               expanded = test::poisoned(x.shape(), DType::bf16);
  if (by_columns) {
    fp8_quantize_blocks({}, {}, numbers, inverse, x, blocks);
    fp8_transpose(turned, numbers);
  } else {
    fp8_quantize_blocks(numbers, inverse, {}, {}, x, blocks);
  }
  fp8_expand_blocks(expanded, by_columns ? turned : numbers, inverse, blocks, columns);
  return expanded;
}
Tensor rows_of(const Tensor& x, DType format = DType::e4m3) {
  return rounded(x, format, Fp8Blocks::vectors);
}
Tensor columns_of(const Tensor& x, DType format = DType::e4m3) {
  return rounded(x, format, Fp8Blocks::vectors, Transpose::yes);
}
Tensor squares_of(const Tensor& weight) {
  return rounded(weight, DType::e4m3, Fp8Blocks::squares);
}

/// The same bits; on a GPU, which adds 128 terms before it scales them, the same up to their rounding.
bool same_result(const Tensor& a, const Tensor& b) {
  if (!test::kOnGpu) return same_bits(a, b);
  return test::relative_error(test::to_doubles(a), test::to_doubles(b)) < 0x1p-7;
}

struct Results {
  Tensor y, dx;
};

/// Forward and backward in the scope of `fp8`.
template <typename Layer>
Results run(Fp8State& fp8, const Tensor& x, const Tensor& dy, const Layer& layer) {
  const Fp8Scope scope(fp8);
  const Variable leaf = Variable::leaf(x), y = layer(leaf);
  backward(y, dy);
  return {y.data(), leaf.gradient()};
}

/// The copies that each rounding writes, and the number of tensors that are transposed or expanded later.
struct Seen : OperationObserver {
  std::vector<std::string> rounded;
  int transposed = 0, expanded = 0;
  void before(std::string_view operation, std::span<const Tensor> arguments) override {
    transposed += operation == "fp8_transpose";
    expanded += operation == "fp8_expand_blocks";
    if (operation != "fp8_quantize_blocks") return;
    const bool both = is_fp8(arguments[2].dtype());
    const bool rows = arguments[0].shape() == arguments[arguments.size() - 1].shape();
    rounded.emplace_back(both ? "both" : rows ? "rows" : "columns");
  }
  void after(std::string_view, std::span<const Tensor>) override {}
};

/// A rank with the tokens of several leaves.
struct Leaves : ContextAxis {
  explicit Leaves(std::int64_t leaves) : ContextAxis({.leaves = leaves}, /*by_heads=*/false) {}
  Event start_gather(const std::vector<Tensor>&) const override { fail("unused"); }
  void reduce_scatter(const Tensor&, const Tensor&) const override { fail("unused"); }
};

}  // namespace

TEST_CASE("fp8 blocks: a linear layer multiplies rows forward, and columns for its weight") {
  const test::Rank rank;
  const Tensor x = values({kRows, kInputs}, "x", 0.01), dy = values({kRows, kOutputs}, "dy", 1e-7),
               residual = normal_tensor({kRows, kOutputs}, DType::bf16, "residual");
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    const Transpose transpose = out_in ? Transpose::yes : Transpose::no;
    OwnedParameter weight =
        parameter("weight", out_in ? Shape{kOutputs, kInputs} : Shape{kInputs, kOutputs});
    weight.data.copy_from(values(weight.data.shape(), "weight"));
    OwnedParameter bias = parameter("bias", {kOutputs});
    for (const DType gradients : {DType::e5m2, DType::e4m3}) {
      CAPTURE(out_in, name_of(gradients));
      Fp8State fp8 = state_of({weight.parameter}, gradients);
      const Results found = run(fp8, x, dy, [&](const Variable& input) {
        return linear(input, weight.parameter, bias.parameter, layout, Variable(residual));
      });
      const Tensor w8 = squares_of(weight.data);
      const Tensor y = test::poisoned(dy.shape(), DType::bf16),
                   dx = test::poisoned(x.shape(), DType::bf16),
                   dweight = test::poisoned(weight.data.shape(), DType::bf16),
                   dbias = test::poisoned({kOutputs}, DType::bf16);
      linear_forward(y, rows_of(x), w8, transpose, bias.data, residual);
      linear_backward_input(dx, rows_of(dy, gradients), w8, transpose);
      linear_backward_weight(dweight, dbias, columns_of(x), columns_of(dy, gradients), transpose,
                             Accumulate::no, Accumulate::no);
      CHECK(same_result(found.y, y));
      CHECK(same_result(found.dx, dx));
      CHECK(same_result(weight.gradient, dweight));
      CHECK(same_bits(bias.gradient, dbias));
      CHECK_FALSE(same_bits(rows_of(x), columns_of(x)));
      CHECK(fp8.largest().numel() == 0);
      weight.parameter.reset_gradient();
      bias.parameter.reset_gradient();
    }
  }
}

TEST_CASE("fp8 blocks: both layers of a feed-forward network multiply rounded factors") {
  const test::Rank rank;
  const Tensor x = values({kRows, kInputs}, "x"), dy = values({kRows, kInputs}, "dy", 1e-5);
  for (const bool gated : {false, true}) {
    CAPTURE(gated);
    const std::int64_t pre_width = gated ? 2 * kOutputs : kOutputs;
    OwnedParameter fc = parameter("fc", {pre_width, kInputs}),
                   proj = parameter("proj", {kInputs, kOutputs});
    Fp8State fp8 = state_of({fc.parameter, proj.parameter});
    const Results results = run(fp8, x, dy, [&](const Variable& input) {
      return gated ? swiglu_mlp(input, fc.parameter, Parameter(), proj.parameter, Parameter())
                   : gelu_mlp(input, fc.parameter, Parameter(), proj.parameter, Parameter(),
                              WeightLayout::out_in);
    });
    const Tensor fc8 = squares_of(fc.data), proj8 = squares_of(proj.data);
    const Tensor pre = test::poisoned({kRows, pre_width}, DType::bf16),
                 hidden = test::poisoned({kRows, kOutputs}, DType::bf16),
                 y = test::poisoned(x.shape(), DType::bf16), dpre = pre.clone(),
                 dhidden = hidden.clone(), dx = y.clone(), dfc = fc.data.clone(),
                 dproj = proj.data.clone();
    if (gated) {
      linear_swiglu_forward(hidden, pre, rows_of(x), fc8, Transpose::yes, {});
    } else {
      linear_forward(pre, rows_of(x), fc8, Transpose::yes, {});
      gelu_forward(hidden, pre, GeluForm::tanh);
    }
    linear_forward(y, rows_of(hidden), proj8, Transpose::yes, {});
    const Tensor dy8 = rows_of(dy, DType::e5m2);
    if (gated) {
      swiglu_linear_backward_input(dpre, dhidden, dy8, proj8, Transpose::yes, pre);
    } else {
      linear_backward_input(dpre, dy8, proj8, Transpose::yes);
      gelu_backward(dpre, dpre, pre, GeluForm::tanh);
    }
    linear_backward_input(dx, rows_of(dpre, DType::e5m2), fc8, Transpose::yes);
    linear_backward_weight(dproj, {}, columns_of(hidden), columns_of(dy, DType::e5m2),
                           Transpose::yes, Accumulate::no, Accumulate::no);
    linear_backward_weight(dfc, {}, columns_of(x), columns_of(dpre, DType::e5m2), Transpose::yes,
                           Accumulate::no, Accumulate::no);
    CHECK(same_result(results.y, y));
    CHECK(same_result(results.dx, dx));
    CHECK(same_result(proj.gradient, dproj));
    CHECK(same_result(fc.gradient, dfc));
  }
}

TEST_CASE("fp8 blocks: blocks of tokens end with a leaf, also for a bias by itself") {
  const test::Rank rank;
  constexpr std::int64_t kLeaves = 2, kOfLeaf = kRows / kLeaves;
  const Tensor x = values({kRows, kInputs}, "x"), dy = values({kRows, kOutputs}, "dy", 1e-5);
  for (const bool trains_weight : {true, false}) {
    CAPTURE(trains_weight);
    OwnedParameter weight = parameter("weight", {kOutputs, kInputs}),
                   bias = parameter("bias", {kOutputs});
    weight.parameter.set_trainable(trains_weight);
    Fp8State fp8 = state_of({weight.parameter});
    const ContextAxisScope scope(std::make_shared<Leaves>(kLeaves));
    const Results found = run(fp8, x, dy, [&](const Variable& input) {
      return linear(input, weight.parameter, bias.parameter, WeightLayout::out_in);
    });
    const Tensor y = test::poisoned(dy.shape(), DType::bf16);
    linear_forward(y, rows_of(x), squares_of(weight.data), Transpose::yes, bias.data);
    CHECK(same_result(found.y, y));
    std::vector<Tensor> dweights, dbiases;
    for (std::int64_t leaf = 0; leaf < kLeaves; ++leaf) {
      const auto of = [&](const Tensor& all) {
        return all.slice(leaf * kOfLeaf, (leaf + 1) * kOfLeaf);
      };
      dweights.push_back(test::poisoned(weight.data.shape(), DType::f32));
      dbiases.push_back(test::poisoned({kOutputs}, DType::f32));
      const Tensor dy8 =
          trains_weight ? columns_of(of(dy), DType::e5m2) : of(rows_of(dy, DType::e5m2));
      linear_backward_weight(dweights.back(), dbiases.back(), columns_of(of(x)), dy8,
                             Transpose::yes, Accumulate::no, Accumulate::no);
    }
    const auto check_sum = [](const Tensor& gradient, const std::vector<Tensor>& of_leaves) {
      std::vector<double> sum = test::to_doubles(of_leaves[0]);
      const std::vector<double> second = test::to_doubles(of_leaves[1]);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
      CHECK(test::relative_error(test::to_doubles(gradient), sum) < 0x1p-8);
    };
    if (trains_weight) check_sum(weight.gradient, dweights);
    check_sum(bias.gradient, dbiases);
  }
}

TEST_CASE("fp8 blocks: one pass over bf16 writes the copies that products read") {
  const test::Rank rank;
  const Tensor x = values({kRows, kInputs}, "x"), dy = values({kRows, kOutputs}, "dy", 1e-5);
  OwnedParameter weight = parameter("weight", {kOutputs, kInputs});
  const auto seen = [&](bool forward_alone = false) {
    Fp8State fp8 = state_of({weight.parameter});
    Seen found;
    const ObserverScope scope(found);
    const auto layer = [&](const Variable& input) {
      return linear(input, weight.parameter, Parameter());
    };
    if (forward_alone) {
      const Fp8Scope in_8_bits(fp8);
      const NoGradient no_gradient;
      layer(Variable(x));
    } else {
      run(fp8, x, dy, layer);
    }
    return found;
  };
  using Names = std::vector<std::string>;
  const std::string backward_weight = test::kOnGpu ? "columns" : "rows";
  const Seen trained = seen();
  CHECK(trained.rounded == Names{"both", "rows", "both", backward_weight});
  // On a CPU the columns of x and of dy. Forward x and W are expanded, and dy, W, x and dy backward.
  CHECK(trained.transposed == (test::kOnGpu ? 0 : 2));
  CHECK(trained.expanded == (test::kOnGpu ? 0 : 6));
  CHECK(seen(/*forward_alone=*/true).rounded == Names{"rows", "rows"});
  weight.parameter.set_trainable(false);
  CHECK(seen().rounded == Names{"rows", "rows", "rows", backward_weight});
}

TEST_CASE("fp8 blocks: an input keeps one byte a number, and its scales, until backward") {
  const test::Rank rank;
  Allocator& allocator = context().allocator();
  const auto live = [&] { return allocator.account()[Category::activations].current; };
  constexpr std::int64_t kWhole = 128;  // all tensors are multiples of 256 bytes
  OwnedParameter weight = parameter("weight", {kOutputs, kWhole});
  Fp8State fp8 = state_of({weight.parameter});
  const Fp8Scope scope(fp8);
  const Variable x = Variable::leaf(values({kRows, kWhole}, "x"));
  const std::int64_t before = live();
  const Variable y = linear(x, weight.parameter, Parameter());
  CHECK(live() - before == 2 * kRows * kOutputs + kRows * kWhole + 2 * kWhole * 4);
}

TEST_CASE("fp8 blocks: joined weights are one matrix, wherever they are") {
  const test::Rank rank;
  OwnedParameter q = parameter("q", {136, kInputs}), k = parameter("k", {136, kInputs});
  const JoinedParameters joined({q.parameter, k.parameter});
  const Tensor x = values({kRows, kInputs}, "x");
  const auto result = [&] {
    Fp8State fp8 = state_of({q.parameter, k.parameter});
    const Fp8Scope scope(fp8);
    return linear(Variable(x), joined, Parameter()).data();
  };
  const Tensor apart = result(), together = values({272, kInputs}, "together");
  q.parameter.open(together.slice(0, 136));
  k.parameter.open(together.slice(136, 272));
  const Tensor y = test::poisoned({kRows, 272}, DType::bf16);
  linear_forward(y, rows_of(x), squares_of(together), Transpose::yes, {});
  CHECK(same_result(result(), y));
  q.parameter.open(q.data);
  k.parameter.open(k.data);
  CHECK(same_bits(result(), apart));
}

}  // namespace tessera
