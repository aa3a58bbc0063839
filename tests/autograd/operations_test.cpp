// Every differentiable operation against finite differences in f64.
#include "autograd/operations.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/rms_norm/op.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::GradientCheck;
using test::normal_tensor;
using test::OwnedParameter;
using Inputs = std::vector<Variable>;

namespace {

Tensor leaf(const Shape& shape, const char* name = "leaf") {
  return normal_tensor(shape, DType::f64, name);
}

}  // namespace

TEST_CASE("linear: gradients for both weight layouts, with and without bias", "[cpu]") {
  const test::Rank rank;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    OwnedParameter weight("weight", out_in ? Shape{5, 3} : Shape{3, 5});
    OwnedParameter bias("bias", {5});
    GradientCheck{
        [&](const Inputs& x) { return linear(x[0], weight.parameter, bias.parameter, layout); },
        {leaf({2, 4, 3})},
        {&weight, &bias}}
        .run();
    GradientCheck{
        [&](const Inputs& x) { return linear(x[0], weight.parameter, Parameter(), layout); },
        {leaf({7, 3})},
        {&weight}}
        .run();
  }
}

TEST_CASE("linear: gradients with a residual, which may be the input too", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {3, 3}), bias("bias", {3});
  const auto out_in = WeightLayout::out_in;
  GradientCheck{
      [&](const Inputs& x) { return linear(x[0], weight.parameter, bias.parameter, out_in, x[1]); },
      {leaf({2, 4, 3}, "x"), leaf({2, 4, 3}, "residual")},
      {&weight, &bias}}
      .run();
  GradientCheck{
      [&](const Inputs& x) { return linear(x[0], weight.parameter, Parameter(), out_in, x[0]); },
      {leaf({5, 3})},
      {&weight}}
      .run();
}

TEST_CASE("linear: gradients of joined weights and biases, apart in memory", "[cpu]") {
  const test::Rank rank;
  OwnedParameter q("q", {4, 3}), k("k", {2, 3}), v("v", {1, 3});
  OwnedParameter q_bias("q_bias", {4}), k_bias("k_bias", {2}), v_bias("v_bias", {1});
  const JoinedParameters weights({q.parameter, k.parameter, v.parameter});
  const JoinedParameters biases({q_bias.parameter, k_bias.parameter, v_bias.parameter});
  GradientCheck{[&](const Inputs& x) { return linear(x[0], weights, biases); },
                {leaf({2, 5, 3})},
                {&q, &k, &v, &q_bias, &k_bias, &v_bias}}
      .run();
}

namespace {

/// Three weights [n, 16] and their gradients, next to each other in memory or apart.
struct ThreeWeights {
  static constexpr std::int64_t kRows[] = {16, 8, 24};
  std::vector<Parameter> parts;
  std::vector<Tensor> gradients;
  Tensor values = normal_tensor({48, 16}, DType::f32, "weights"),
         all_gradients = test::poisoned({48, 16}, DType::f32);

  explicit ThreeWeights(bool neighbours) {
    const auto place = [&](const Tensor& all, std::int64_t begin, std::int64_t end) {
      return neighbours ? all.slice(begin, end) : all.slice(begin, end).clone();
    };
    for (std::int64_t i = 0, begin = 0; i < 3; begin += kRows[i++]) {
      parts.emplace_back("part." + std::to_string(i), Shape{kRows[i], 16}, Initializer::zeros());
      parts.back().open(place(values, begin, begin + kRows[i]));
      gradients.push_back(place(all_gradients, begin, begin + kRows[i]));
      parts.back().open_gradient(gradients.back());
    }
  }
};

/// The result, and the gradients of the input and of the weights that are trained, after two
/// contributions.
std::vector<Tensor> results_of(const ThreeWeights& weights) {
  const JoinedParameters joined(weights.parts);
  std::vector<Tensor> results;
  for (const char* name : {"first", "second"}) {
    const Variable x = Variable::leaf(normal_tensor({9, 16}, DType::f32, name));
    const Variable y = linear(x, joined, Parameter());
    backward(y, normal_tensor({9, 48}, DType::f32, "dy"));
    results.push_back(y.data());
    results.push_back(x.gradient());
  }
  for (std::size_t i = 0; i < weights.parts.size(); ++i) {
    if (weights.parts[i].trainable()) results.push_back(weights.gradients[i]);
  }
  return results;
}

}  // namespace

TEST_CASE(
    "joined weights give the same bits as neighbours in memory and apart, and frozen in part") {
  const test::Rank rank;
  for (int frozen = 0; frozen < 7; ++frozen) {
    CAPTURE(frozen);
    const ThreeWeights neighbours(true), apart(false);
    for (const ThreeWeights* weights : {&neighbours, &apart}) {
      for (int i = 0; i < 3; ++i) {
        weights->parts[static_cast<std::size_t>(i)].set_trainable((frozen >> i & 1) == 0);
      }
    }
    const auto expected = results_of(neighbours), results = results_of(apart);
    REQUIRE(expected.size() == results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      CAPTURE(i);
      CHECK(test::same_bits(results[i], expected[i]));
    }
    for (std::size_t i = 0; i < 3; ++i) {  // a frozen part's gradient is not touched
      if (neighbours.parts[i].trainable()) continue;
      const std::vector<float> untouched = neighbours.gradients[i].to_vector<float>();
      CHECK(std::all_of(untouched.begin(), untouched.end(), [](float x) { return x != x; }));
    }
  }
}

TEST_CASE("joined weights have the rows of separate products side by side") {
  const test::Rank rank;
  const ThreeWeights weights(true);
  const Variable x(normal_tensor({9, 16}, DType::f32, "x"));
  const auto joined = linear(x, JoinedParameters(weights.parts), Parameter()).data();
  const auto values = joined.to_vector<float>();
  std::int64_t first = 0;
  for (const Parameter& part : weights.parts) {
    const auto own = linear(x, part, Parameter()).data().to_vector<float>();
    const std::int64_t columns = part.shape()[0];
    for (std::int64_t n = 0; n < 9; ++n) {
      for (std::int64_t c = 0; c < columns; ++c) {
        CHECK(values[static_cast<std::size_t>(n * 48 + first + c)] ==
              Approx(own[static_cast<std::size_t>(n * columns + c)]).epsilon(1e-5).margin(1e-5));
      }
    }
    first += columns;
  }
}

TEST_CASE("neighbours are joined without a copy, parameters apart are not") {
  test::Rank rank;
  const ThreeWeights neighbours(true), apart(false);
  const auto workspace = [&] {
    return rank.context.allocator().account()[Category::workspace].current;
  };
  const auto before = workspace();
  const JoinedParameters joined(neighbours.parts);
  const Tensor view = joined.data();
  CHECK(view.raw() == neighbours.values.raw());
  CHECK(JoinedGradient(joined).window().raw() == neighbours.all_gradients.raw());
  CHECK(workspace() == before);
  const Tensor copy = JoinedParameters(apart.parts).data();
  CHECK(workspace() == before + 48 * 16 * 4);
  CHECK(test::same_bits(copy, view));
}

TEST_CASE("joined parameters: wrong parts are named", "[cpu]") {
  const Parameter a("a", {2, 3}, Initializer::zeros()), b("b", {2, 4}, Initializer::zeros());
  REQUIRE_THROWS_WITH(JoinedParameters({a, b}),
                      Catch::Contains("parameter 'b' of shape [2, 4] cannot be joined with 'a'"));
  REQUIRE_THROWS_WITH(JoinedParameters({a, Parameter()}), Catch::Contains("undefined"));
}

TEST_CASE("gelu_mlp: gradients for both weight layouts, with and without biases", "[cpu]") {
  const test::Rank rank;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    OwnedParameter fc("fc", out_in ? Shape{6, 3} : Shape{3, 6}), fc_bias("fc_bias", {6});
    OwnedParameter proj("proj", out_in ? Shape{4, 6} : Shape{6, 4}), proj_bias("proj_bias", {4});
    GradientCheck{[&](const Inputs& x) {
                    return gelu_mlp(x[0], fc.parameter, fc_bias.parameter, proj.parameter,
                                    proj_bias.parameter, layout);
                  },
                  {leaf({2, 5, 3})},
                  {&fc, &fc_bias, &proj, &proj_bias}}
        .run();
    GradientCheck{[&](const Inputs& x) {
                    return gelu_mlp(x[0], fc.parameter, Parameter(), proj.parameter, Parameter(),
                                    layout);
                  },
                  {leaf({7, 3})},
                  {&fc, &proj}}
        .run();
    GradientCheck{[&](const Inputs& x) {
                    return gelu_mlp(x[0], fc.parameter, fc_bias.parameter, proj.parameter,
                                    proj_bias.parameter, layout, x[1]);
                  },
                  {leaf({2, 5, 3}, "x"), leaf({2, 5, 4}, "residual")},
                  {&fc, &fc_bias, &proj, &proj_bias}}
        .run();
  }
  const OwnedParameter fc("fc", {6, 3}), proj("proj", {4, 6});
  REQUIRE_THROWS_WITH(gelu_mlp(Variable::leaf(Tensor::zeros({7, 3}, DType::f64)), fc.parameter,
                               Parameter(), proj.parameter, Parameter(), WeightLayout::out_in,
                               Variable::leaf(Tensor::zeros({7, 3}, DType::f64))),
                      Catch::Contains("gelu_mlp: the residual is") && Catch::Contains("[7, 4]"));
}

TEST_CASE(
    "gelu_mlp is linear, gelu, linear, add, to the bit on the CPU, with any parameter frozen") {
  const test::Rank rank;
  struct Layers {
    Parameter fc{"fc", {8, 16}, Initializer::zeros()},
        fc_bias{"fc_bias", {16}, Initializer::zeros()};
    Parameter proj{"proj", {16, 8}, Initializer::zeros()},
        proj_bias{"proj_bias", {8}, Initializer::zeros()};
    std::vector<Tensor> gradients;

    Layers() {
      for (const Parameter& parameter : {fc, fc_bias, proj, proj_bias}) {
        parameter.open(normal_tensor(parameter.shape(), DType::f32, parameter.name(), 0.3));
        gradients.push_back(Tensor::zeros(parameter.shape(), DType::f32));
        parameter.open_gradient(gradients.back());
        parameter.reset_gradient();
      }
    }
  };
  const Tensor dy = normal_tensor({9, 8}, DType::f32, "dy");
  for (int frozen = 0; frozen < 16; ++frozen) {
    CAPTURE(frozen);
    std::vector<Tensor> results[2];
    for (const bool fused : {false, true}) {
      const Layers l;
      int bit = 0;
      for (const Parameter& parameter : {l.fc, l.fc_bias, l.proj, l.proj_bias}) {
        parameter.set_trainable((frozen >> bit++ & 1) == 0);
      }
      const Variable x = Variable::leaf(normal_tensor({9, 8}, DType::f32, "x"));
      const Variable residual = Variable::leaf(normal_tensor({9, 8}, DType::f32, "residual"));
      const auto in_out = WeightLayout::in_out;
      const Variable y = fused ? gelu_mlp(x, l.fc, l.fc_bias, l.proj, l.proj_bias, in_out, residual)
                               : add(residual, linear(gelu(linear(x, l.fc, l.fc_bias, in_out)),
                                                      l.proj, l.proj_bias, in_out));
      backward(y, dy.clone());
      results[fused] = l.gradients;
      results[fused].push_back(y.data());
      results[fused].push_back(x.gradient());
      results[fused].push_back(residual.gradient());
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      CHECK(test::relative_error(test::to_doubles(results[1][i]),
                                 test::to_doubles(results[0][i])) <= (test::kOnGpu ? 2e-6 : 0.0));
    }
  }
}

TEST_CASE("swiglu_mlp: gradients of joined weights and of one, with and without biases", "[cpu]") {
  const test::Rank rank;
  OwnedParameter gate("gate", {5, 3}), up("up", {5, 3}), down("down", {4, 5});
  OwnedParameter gate_bias("gate_bias", {5}), up_bias("up_bias", {5}), down_bias("down_bias", {4});
  const JoinedParameters gate_up({gate.parameter, up.parameter});
  const JoinedParameters biases({gate_bias.parameter, up_bias.parameter});
  GradientCheck{[&](const Inputs& x) {
                  return swiglu_mlp(x[0], gate_up, biases, down.parameter, down_bias.parameter,
                                    x[1]);
                },
                {leaf({2, 6, 3}, "x"), leaf({2, 6, 4}, "residual")},
                {&gate, &up, &gate_bias, &up_bias, &down, &down_bias}}
      .run();
  OwnedParameter packed("gate_up", {10, 3});
  GradientCheck{[&](const Inputs& x) {
                  return swiglu_mlp(x[0], packed.parameter, Parameter(), down.parameter,
                                    Parameter());
                },
                {leaf({7, 3})},
                {&packed, &down}}
      .run();
}

TEST_CASE("swiglu_mlp is linear, swiglu, linear, to the bit, with any parameter frozen") {
  const test::Rank rank;
  struct Layers {
    Parameter gate{"gate", {12, 8}, Initializer::zeros()}, up{"up", {12, 8}, Initializer::zeros()};
    Parameter bias{"bias", {24}, Initializer::zeros()}, down{"down", {8, 12}, Initializer::zeros()};
    std::vector<Tensor> gradients;

    Layers() {
      for (const Parameter& parameter : {gate, up, bias, down}) {
        parameter.open(normal_tensor(parameter.shape(), DType::f32, parameter.name(), 0.3));
        gradients.push_back(Tensor::zeros(parameter.shape(), DType::f32));
        parameter.open_gradient(gradients.back());
        parameter.reset_gradient();
      }
    }
  };
  const Tensor dy = normal_tensor({9, 8}, DType::f32, "dy");
  for (int frozen = 0; frozen < 16; ++frozen) {
    CAPTURE(frozen);
    std::vector<Tensor> results[2];
    for (const bool fused : {false, true}) {
      const Layers l;
      int bit = 0;
      for (const Parameter& parameter : {l.gate, l.up, l.bias, l.down}) {
        parameter.set_trainable((frozen >> bit++ & 1) == 0);
      }
      const Variable x = Variable::leaf(normal_tensor({9, 8}, DType::f32, "x"));
      const Variable residual = Variable::leaf(normal_tensor({9, 8}, DType::f32, "residual"));
      const JoinedParameters gate_up({l.gate, l.up});
      const Variable y = fused ? swiglu_mlp(x, gate_up, l.bias, l.down, Parameter(), residual)
                               : linear(swiglu(linear(x, gate_up, l.bias)), l.down, Parameter(),
                                        WeightLayout::out_in, residual);
      backward(y, dy.clone());
      results[fused] = l.gradients;
      results[fused].push_back(y.data());
      results[fused].push_back(x.gradient());
      results[fused].push_back(residual.gradient());
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      CHECK(test::same_bits(results[1][i], results[0][i]));
    }
  }
}

TEST_CASE("swiglu_mlp: backward writes gradients over what it saved") {
  test::Rank rank;
  constexpr std::int64_t N = 6, C = 4, F = 32;
  OwnedParameter gate_up("gate_up", {2 * F, C}, 1.0, DType::f32),
      down("down", {C, F}, 1.0, DType::f32);
  const Variable x = Variable::leaf(normal_tensor({N, C}, DType::f32, "x"));
  const Variable y = swiglu_mlp(x, gate_up.parameter, Parameter(), down.parameter, Parameter());
  const Tensor dy = normal_tensor({N, C}, DType::f32, "dy");
  Allocator& allocator = rank.context.allocator();
  allocator.reset_peaks();
  const auto bytes = [&] { return allocator.account()[Category::activations]; };
  const std::int64_t before = bytes().current;
  backward(y, dy);
  // y's result of F channels has made room before the gradient of x, of C channels, is made.
  CHECK(bytes().peak == before);
}

TEST_CASE("matmul: gradients for all transposes, plain and batched", "[cpu]") {
  const test::Rank rank;
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      const Shape a = ta == Transpose::no ? Shape{3, 4} : Shape{4, 3};
      const Shape b = tb == Transpose::no ? Shape{4, 5} : Shape{5, 4};
      GradientCheck{[&](const Inputs& x) { return matmul(x[0], x[1], ta, tb); },
                    {leaf(a, "a"), leaf(b, "b")},
                    {}}
          .run();
      GradientCheck{[&](const Inputs& x) { return matmul(x[0], x[1], ta, tb); },
                    {leaf({2, a[0], a[1]}, "a"), leaf({2, b[0], b[1]}, "b")},
                    {}}
          .run();
    }
  }
}

TEST_CASE("embedding: gradients of rows used never, once and often", "[cpu]") {
  const test::Rank rank;
  OwnedParameter table("table", {6, 3});
  const Tensor ids = Tensor::from(std::vector<std::int32_t>{0, 4, 4, 1, 4, 5}, {2, 3});
  GradientCheck{[&](const Inputs&) { return embedding(ids, table.parameter); }, {}, {&table}}.run();
}

TEST_CASE("layer_norm and rms_norm: gradients", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7});
  OwnedParameter bias("bias", {7});
  GradientCheck{
      [&](const Inputs& x) { return layer_norm(x[0], weight.parameter, bias.parameter, 1e-5f); },
      {leaf({2, 3, 7})},
      {&weight, &bias}}
      .run();
  GradientCheck{[&](const Inputs& x) { return rms_norm(x[0], weight.parameter, 1e-5f); },
                {leaf({2, 3, 7})},
                {&weight}}
      .run();
  GradientCheck{[](const Inputs& x) { return rms_norm(x[0], 1e-5f); }, {leaf({2, 3, 7})}, {}}.run();
}

TEST_CASE("rms_norm without a weight has the bits of one with a weight of ones") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CAPTURE(name_of(dtype));
    const Tensor x = test::normal_tensor({5, 24}, dtype, "x");
    const Tensor y = Tensor::empty({5, 24}, dtype), rstd = Tensor::empty({5}, DType::f32);
    const Tensor ones = test::tensor_of(std::vector<double>(24, 1.0), {24}, dtype);
    rms_norm_forward(y, rstd, x, ones, 1e-5f);
    CHECK(test::same_bits(rms_norm(Variable(x), 1e-5f).data(), y));
  }
}

TEST_CASE("add_layer_norm and add_rms_norm: gradients, whichever results are used", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7});
  OwnedParameter bias("bias", {7});
  const auto check = [&](auto use) {
    const std::vector<Tensor> leaves = {leaf({2, 3, 7}, "x"), leaf({2, 3, 7}, "branch")};
    GradientCheck{[&](const Inputs& x) {
                    return use(x[0], add_layer_norm(x[0], scale(x[1], 0.7), weight.parameter,
                                                    bias.parameter, 1e-5f));
                  },
                  leaves,
                  {&weight, &bias}}
        .run();
    GradientCheck{[&](const Inputs& x) {
                    return use(x[0], add_rms_norm(x[0], x[1], weight.parameter, 1e-5f));
                  },
                  leaves,
                  {&weight}}
        .run();
  };
  check([](const Variable&, const SumAndNorm& r) { return r.norm; });
  check([](const Variable&, const SumAndNorm& r) { return add(r.sum, gelu(r.norm)); });
  check([](const Variable& x, const SumAndNorm& r) { return add(gelu(r.norm), add(r.sum, x)); });
}

TEST_CASE("add_layer_norm writes the sum over a temporary, and over nothing else", "[cpu]") {
  const test::Rank rank;
  const Tensor ones = Tensor::full({4}, DType::f64, 1.0), zeros = Tensor::zeros({4}, DType::f64);
  OwnedParameter weight("weight", {4}), bias("bias", {4});
  weight.data.copy_from(ones);
  bias.data.copy_from(zeros);
  const auto sum_of = [&](Variable branch) {
    const Variable x(normal_tensor({3, 4}, DType::f64, "x"));
    return add_layer_norm(x, std::move(branch), weight.parameter, bias.parameter, 1e-5f).sum;
  };
  const Tensor values = normal_tensor({3, 4}, DType::f64, "branch");
  Variable branch(values.clone());
  const auto* place = branch.data().raw();
  const Variable sum = sum_of(branch);
  CHECK(sum.data().raw() != place);
  CHECK(test::same_bits(branch.data(), values));
  const Variable over = sum_of(std::move(branch));
  CHECK(over.data().raw() == place);
  CHECK(test::same_bits(over.data(), sum.data()));

  const Tensor kept = values.clone();
  sum_of(Variable(kept));
  CHECK(test::same_bits(kept, values));
}

TEST_CASE("gelu, add, scale, reshape, dropout and cast: gradients", "[cpu]") {
  const test::Rank rank;
  const auto check = [](auto function, std::vector<Tensor> leaves) {
    GradientCheck{function, std::move(leaves), {}}.run();
  };
  check([](const Inputs& x) { return gelu(x[0]); }, {leaf({3, 5})});
  check([](const Inputs& x) { return add(x[0], x[1]); }, {leaf({3, 5}, "a"), leaf({3, 5}, "b")});
  check([](const Inputs& x) { return add(x[0], x[0]); }, {leaf({3, 5})});
  check([](const Inputs& x) { return scale(x[0], -1.75); }, {leaf({3, 5})});
  check([](const Inputs& x) { return gelu(reshape(x[0], {15})); }, {leaf({3, 5})});
  check([](const Inputs& x) { return dropout(x[0], 0.4f, RandomStream(5, "site", 2, 1)); },
        {leaf({3, 50})});
}

TEST_CASE("swiglu: gradients of two inputs, of one that packs both, and of one used twice",
          "[cpu]") {
  const test::Rank rank;
  GradientCheck{[](const Inputs& x) { return swiglu(x[0], x[1]); },
                {leaf({2, 3, 5}, "gate"), leaf({2, 3, 5}, "up")},
                {}}
      .run();
  GradientCheck{[](const Inputs& x) { return swiglu(x[0]); }, {leaf({2, 3, 10})}, {}}.run();
  GradientCheck{[](const Inputs& x) { return swiglu(x[0], x[0]); }, {leaf({3, 5})}, {}}.run();
  // swiglu saves a temporary, and backward writes over it.
  GradientCheck{[](const Inputs& x) { return swiglu(scale(x[0], 2.0)); }, {leaf({3, 10})}, {}}
      .run();
  GradientCheck{[](const Inputs& x) { return swiglu(scale(x[0], 2.0), scale(x[0], 3.0)); },
                {leaf({3, 5})},
                {}}
      .run();
}

TEST_CASE("swiglu: backward writes over its saved tensors if it is their only owner") {
  const test::Rank rank;
  const auto gradient_is_saved = [](bool keep) {
    const Variable x = Variable::leaf(normal_tensor({3, 10}, DType::f32, "leaf"));
    Variable gate_up = scale(x, 2.0);
    const std::byte* const saved = gate_up.data().raw();
    const Variable y = swiglu(gate_up);
    if (!keep) gate_up = Variable();
    backward(y, normal_tensor({3, 5}, DType::f32, "seed"));
    return x.gradient().raw() == saved;
  };
  CHECK(gradient_is_saved(false));
  CHECK_FALSE(gradient_is_saved(true));
}

TEST_CASE("rope: gradients in both conventions, with positions that count or are given", "[cpu]") {
  const test::Rank rank;
  const Tensor each = Tensor::from(std::vector<std::int32_t>{0, 1, 0, 3, 2, 1}, {2, 3});
  for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
    const RopeTable table = rope_table(9, rope_frequencies(6, 100.0), pairs, DType::f64);
    for (const RopePositions& positions : {RopePositions{.first = 5}, RopePositions{2, each}}) {
      const auto check = [&](auto function) {
        GradientCheck{function, {leaf({2, 3, 20})}, {}}.run();
      };
      check([&](const Inputs& x) { return rope(x[0], 3, 6, table, positions); });
      check([&](const Inputs& x) { return rope(scale(x[0], 2.0), 3, 6, table, positions); });
      check([&](const Inputs& x) { return add(rope(x[0], 3, 6, table, positions), x[0]); });
    }
  }
}

TEST_CASE("rope works in place on a temporary only") {
  const test::Rank rank;
  const RopeTable table = rope_table(3, rope_frequencies(4, 100.0), RopePairs::half_split);
  const Variable x = Variable::leaf(normal_tensor({1, 3, 4}, DType::f32, "leaf"));
  const Tensor before = x.data().clone();
  Variable kept = scale(x, 1.0);
  const std::byte* const memory = kept.data().raw();
  CHECK(rope(x, 1, 4, table).data().raw() != x.data().raw());
  CHECK(rope(kept, 1, 4, table).data().raw() != memory);
  CHECK(test::same_bits(kept.data(), before));
  const Tensor handle = kept.data();
  CHECK(rope(Variable(handle), 1, 4, table).data().raw() != memory);
  CHECK(test::same_bits(kept.data(), before));
  CHECK(test::same_bits(x.data(), before));
}

TEST_CASE("rope turns a variable that was moved in where it lies") {
  const test::Rank rank;
  const RopeTable table = rope_table(3, rope_frequencies(4, 100.0), RopePairs::half_split);
  Variable x = scale(Variable(normal_tensor({1, 3, 4}, DType::f32, "leaf")), 1.0);
  const std::byte* const memory = x.data().raw();
  CHECK(rope(std::move(x), 1, 4, table).data().raw() == memory);
}

TEST_CASE("cast: the gradient comes back in the input's dtype", "[cpu]") {
  const test::Rank rank;
  const Variable x = Variable::leaf(Tensor::from(std::vector<float>{1.0f, -2.5f}, {2}));
  const Variable y = cast(x, DType::f64);
  backward(y, Tensor::from(std::vector<double>{0.5, 3.0}, {2}));
  CHECK(x.gradient().to_vector<float>() == std::vector<float>{0.5f, 3.0f});
}

TEST_CASE("attention: gradients with plain and grouped heads", "[cpu]") {
  const test::Rank rank;
  for (const std::int64_t kv_heads : {4, 2, 1}) {
    const std::int64_t channels = (4 + 2 * kv_heads) * 3;
    GradientCheck{
        [&](const Inputs& x) { return attention(x[0], 4, kv_heads); }, {leaf({2, 5, channels})}, {}}
        .run();
  }
}

TEST_CASE("attention: gradients with a first key per query", "[cpu]") {
  const test::Rank rank;
  const Tensor first_key =
      Tensor::from(std::vector<std::int32_t>{0, 0, 2, 2, 2, 0, 1, 1, 3, 4}, {2, 5});
  GradientCheck{[&](const Inputs& x) { return attention(x[0], 4, 2, first_key); },
                {leaf({2, 5, (4 + 2 * 2) * 3})},
                {}}
      .run();
  GradientCheck{[&](const Inputs& x) { return attention(x[0], x[1], x[2], 4, 2, first_key); },
                {leaf({2, 5, 12}, "q"), leaf({2, 5, 6}, "k"), leaf({2, 5, 6}, "v")},
                {}}
      .run();
}

TEST_CASE("attention: gradients with separate queries, keys and values", "[cpu]") {
  const test::Rank rank;
  for (const std::int64_t kv_heads : {4, 2, 1}) {
    GradientCheck{
        [&](const Inputs& x) { return attention(x[0], x[1], x[2], 4, kv_heads); },
        {leaf({2, 5, 12}, "q"), leaf({2, 5, 3 * kv_heads}, "k"), leaf({2, 5, 3 * kv_heads}, "v")},
        {}}
        .run();
  }
  const Variable q(leaf({2, 5, 12})), k(leaf({2, 5, 6})), short_k(leaf({2, 4, 6}));
  REQUIRE_THROWS_WITH(attention(q, short_k, short_k, 4, 2),
                      Catch::Contains("k is f64 [2, 4, 6]") &&
                          Catch::Contains("expected [B, T, 4 D], [B, T, 2 D]"));
  REQUIRE_THROWS_WITH(attention(q, k, k, 5, 2), Catch::Contains("[B, T, 5 D]"));
}

TEST_CASE("attention: gradients with rotary positions", "[cpu]") {
  const test::Rank rank;
  const Rotary rotary{rope_table(9, rope_frequencies(4, 100.0), RopePairs::half_split, DType::f64),
                      {.first = 3}};
  GradientCheck{[&](const Inputs& x) { return attention(x[0], 4, 2, Tensor(), rotary); },
                {leaf({2, 5, (4 + 2 * 2) * 4})},
                {}}
      .run();
}

TEST_CASE("attention: gradients with norms of queries and keys, of which one may be frozen",
          "[cpu]") {
  const test::Rank rank;
  OwnedParameter q_norm("q_norm", {4}), k_norm("k_norm", {4});
  const Rotary rotary{rope_table(9, rope_frequencies(4, 100.0), RopePairs::half_split, DType::f64),
                      {.first = 3}};
  const QkNorm norm{JoinedParameters({q_norm.parameter, k_norm.parameter}), 1e-5f};
  const auto check = [&](const std::vector<OwnedParameter*>& trained) {
    GradientCheck{[&](const Inputs& x) { return attention(x[0], 4, 2, Tensor(), rotary, norm); },
                  {leaf({2, 5, (4 + 2 * 2) * 4})},
                  trained}
        .run();
  };
  check({&q_norm, &k_norm});
  q_norm.parameter.set_trainable(false);
  check({&k_norm});
  k_norm.parameter.set_trainable(false);
  check({});
}

TEST_CASE("attention with rotary positions has the bits of rope before it, and leaves its input",
          "[cpu]") {
  const test::Rank rank;
  const RopeTable table = rope_table(5, rope_frequencies(4, 100.0), RopePairs::half_split);
  const Tensor qkv = normal_tensor({2, 5, 32}, DType::f32, "qkv"), kept = qkv.clone();
  const Variable x = Variable::leaf(qkv), y = Variable::leaf(qkv);
  const Variable together = attention(x, 4, 2, Tensor(), {table});
  const Variable apart = attention(rope(y, 6, 4, table), 4, 2);
  REQUIRE(test::same_bits(together.data(), apart.data()));
  REQUIRE(test::same_bits(qkv, kept));
  const Tensor seed = normal_tensor({2, 5, 16}, DType::f32, "seed");
  backward(together, seed.clone());
  backward(apart, seed.clone());
  REQUIRE(test::same_bits(x.gradient(), y.gradient()));
}

TEST_CASE("cross_entropy: gradients of the mean over valid targets", "[cpu]") {
  const test::Rank rank;
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{2, 0, kIgnoreIndex, 6}, {4});
  GradientCheck{[&](const Inputs& x) { return cross_entropy(x[0], targets); }, {leaf({4, 7})}, {}}
      .run();
}

TEST_CASE("linear_cross_entropy: gradients, with chunks that do not divide the tokens", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7, 3});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{2, 0, kIgnoreIndex, 6, 1}, {5});
  for (const std::int64_t chunk : {1, 2, 3, 5, 64}) {
    GradientCheck{[&](const Inputs& x) {
                    return linear_cross_entropy(x[0], weight.parameter, targets, 0.25, kIgnoreIndex,
                                                chunk);
                  },
                  {leaf({5, 3})},
                  {&weight}}
        .run();
  }
}

TEST_CASE("constants and frozen parameters give a constant, one trained parameter does not",
          "[cpu]") {
  const test::Rank rank;
  OwnedParameter matrix("matrix", {7, 3}), row("row", {3}), bias("bias", {3}), outputs("b", {7});
  const Variable x(leaf({2, 3}));
  const Tensor ids = Tensor::from(std::vector<std::int32_t>{2, 0}, {2});
  const auto check = [](std::vector<OwnedParameter*> used, const auto& operation) {
    for (OwnedParameter* owned : used) owned->parameter.set_trainable(false);
    CHECK_FALSE(operation().requires_gradient());
    for (OwnedParameter* owned : used) {
      owned->parameter.set_trainable(true);
      CHECK(operation().requires_gradient());
      owned->parameter.set_trainable(false);
    }
  };
  check({&matrix, &outputs}, [&] { return linear(x, matrix.parameter, outputs.parameter); });
  check({&matrix}, [&] { return embedding(ids, matrix.parameter); });
  check({&row, &bias}, [&] { return layer_norm(x, row.parameter, bias.parameter, 1e-5f); });
  check({&row}, [&] { return rms_norm(x, row.parameter, 1e-5f); });
  OwnedParameter q_norm("q_norm", {2}), k_norm("k_norm", {2});
  const Variable heads(leaf({1, 2, 6}));
  const Rotary rotary{rope_table(2, rope_frequencies(2, 100.0), RopePairs::half_split, DType::f64)};
  check({&q_norm, &k_norm}, [&] {
    const QkNorm norm{JoinedParameters({q_norm.parameter, k_norm.parameter}), 1e-5f};
    return attention(heads, 1, 1, Tensor(), rotary, norm);
  });
  check({&matrix}, [&] { return linear_cross_entropy(x, matrix.parameter, ids, 0.5); });
}

TEST_CASE("linear_cross_entropy refuses to be differentiated further", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7, 3});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{2, 0}, {2});
  const Variable x = Variable::leaf(leaf({2, 3}));
  const Variable loss = scale(linear_cross_entropy(x, weight.parameter, targets, 0.5), 2.0);
  REQUIRE_THROWS_WITH(backward(loss), Catch::Contains("loss_scale"));
}

}  // namespace tessera
