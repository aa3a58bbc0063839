// The sum of a gradient's rows: the backward pass of a norm or of attention leaves it for the bias of the layer
// before.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/fp8.h"
#include "autograd/operations.h"
#include "kernels/bias/op.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/options.h"
#include "kernels/rope/op.h"
#include "tests/support/gradient_check.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::OwnedParameter;

constexpr std::int64_t kRows = 70, kWidth = 64;

/// Together: norms leave sums of rows for biases. Recomputed: the last layer of the block gets none. Apart: no
/// layer does.
enum class Way { together, recomputed, apart };

Variable linked(const Variable& x, Way way) {
  if (way != Way::apart) return x;
  return differentiable(x.data(), {x}, false, [](Tensor dy) -> Gradients { return {dy}; });
}

/// The end of a block of GPT-2, and the norm behind it.
struct Block {
  DType dtype, gradient_dtype;
  bool fp8 = false;
  std::deque<OwnedParameter> parameters = {};

  /// The gradients of the input and of all parameters after two passes.
  std::vector<Tensor> gradients(Way way) {
    const Parameter c_proj = add("c_proj", {kWidth, kWidth}), c_bias = add("c_bias", {kWidth});
    const Parameter ln_2 = add("ln_2", {kWidth}), ln_2_bias = add("ln_2_bias", {kWidth});
    const Parameter fc = add("fc", {kWidth, 96}), fc_bias = add("fc_bias", {96});
    const Parameter proj = add("proj", {96, kWidth}), proj_bias = add("proj_bias", {kWidth});
    const Parameter ln_f = add("ln_f", {kWidth}), ln_f_bias = add("ln_f_bias", {kWidth});
    constexpr auto kLayout = WeightLayout::in_out;
    Fp8State rounding({c_proj, fc, proj}, {});
    std::vector<Tensor> results;
    for (const char* name : {"first", "second"}) {
      std::optional<Fp8Scope> scope;
      if (fp8) scope.emplace(rounding);
      const Variable x = Variable::leaf(normal_tensor({kRows, kWidth}, dtype, name));
      const auto block = [=](const Variable& stream) {
        const Variable middle = linear(stream, c_proj, c_bias, kLayout, stream);
        const Variable normed = layer_norm(linked(middle, way), ln_2, ln_2_bias, 1e-5f);
        return gelu_mlp(normed, fc, fc_bias, proj, proj_bias, kLayout, middle);
      };
      const Variable y = way == Way::recomputed ? checkpoint(block, x) : block(x);
      backward(layer_norm(linked(y, way), ln_f, ln_f_bias, 1e-5f),
               normal_tensor({kRows, kWidth}, dtype, "dy"));
      results.push_back(x.gradient());
      rounding.end_step();  // the second pass rounds dy
    }
    for (const OwnedParameter& parameter : parameters) results.push_back(parameter.gradient);
    parameters.clear();
    return results;
  }

 private:
  Parameter add(const char* name, const Shape& shape) {
    OwnedParameter& added = parameters.emplace_back(name, shape, 0.5, dtype);
    added.gradient = test::poisoned(shape, gradient_dtype);
    added.parameter.open_gradient(added.gradient);
    return added.parameter;
  }
};

/// Attention, and the layer that makes its queries, keys and values.
struct AttentionBlock {
  DType dtype, gradient_dtype;
  bool fp8 = false, packed = false;

  /// The gradients of the input, of the weight and of the bias after two passes.
  std::vector<Tensor> gradients(Way way) const {
    OwnedParameter weight("c_attn", {kWidth, 3 * kWidth}, 0.5, dtype);
    OwnedParameter bias("c_bias", {3 * kWidth}, 0.5, dtype);
    for (OwnedParameter* const owned : {&weight, &bias}) {
      owned->gradient = test::poisoned(owned->parameter.held_shape(), gradient_dtype);
      owned->parameter.open_gradient(owned->gradient);
    }
    std::vector<std::int32_t> first(kRows, 0);
    std::fill(first.begin() + 30, first.end(), 30);
    const Tensor first_key = packed ? Tensor::from(first, {1, kRows}) : Tensor();
    Fp8State rounding({weight.parameter}, {});
    std::vector<Tensor> results;
    for (const char* name : {"first", "second"}) {
      std::optional<Fp8Scope> scope;
      if (fp8) scope.emplace(rounding);
      const Variable x = Variable::leaf(normal_tensor({1, kRows, kWidth}, dtype, name));
      const auto block = [&](const Variable& input) {
        const Variable qkv = linear(input, weight.parameter, bias.parameter, WeightLayout::in_out);
        return attention(linked(qkv, way), 1, 1, first_key);
      };
      backward(way == Way::recomputed ? checkpoint(block, x) : block(x),
               normal_tensor({1, kRows, kWidth}, dtype, "dy"));
      results.push_back(x.gradient());
      rounding.end_step();
    }
    results.push_back(weight.gradient);
    results.push_back(bias.gradient);
    return results;
  }
};

}  // namespace

TEST_CASE("gradient totals: a bias's gradient from a norm has the bits of a pass over dy") {
  const test::Rank rank;
  for (Block block : {Block{DType::f32, DType::f32}, Block{DType::bf16, DType::f32},
                      Block{DType::bf16, DType::bf16}, Block{DType::bf16, DType::f32, true}}) {
    const auto apart = block.gradients(Way::apart);
    const auto together = block.gradients(Way::together);
    const auto recomputed = block.gradients(Way::recomputed);
    for (std::size_t i = 0; i < apart.size(); ++i) {
      INFO(name_of(block.dtype) << ", " << name_of(block.gradient_dtype) << ", fp8 " << block.fp8
                                << ", result " << i);
      CHECK(test::same_bits(together[i], apart[i]));
      CHECK(test::same_bits(recomputed[i], apart[i]));
    }
  }
}

// f32 has other kernels, packed documents have pieces, and a gradient may be rounded to 8 bits.
TEST_CASE("gradient totals: without lines of attention a bias's gradient is the sum over dy") {
  const test::Rank rank;
  for (const AttentionBlock block :
       {AttentionBlock{DType::f32, DType::f32},
        AttentionBlock{DType::bf16, DType::f32, /*fp8=*/true},
        AttentionBlock{DType::bf16, DType::f32, /*fp8=*/false, /*packed=*/true}}) {
    INFO(name_of(block.dtype) << ", " << name_of(block.gradient_dtype) << ", fp8 " << block.fp8);
    const auto apart = block.gradients(Way::apart), together = block.gradients(Way::together);
    for (std::size_t i = 0; i < apart.size(); ++i) {
      CHECK(test::same_bits(together[i], apart[i]));
    }
  }
}

TEST_CASE("gradient totals: attention's lines give a bias the same gradient up to rounding") {
  const test::Rank rank;
  for (const DType gradient_dtype : {DType::f32, DType::bf16}) {
    INFO(name_of(gradient_dtype));
    const AttentionBlock block{DType::bf16, gradient_dtype};
    const auto apart = block.gradients(Way::apart), together = block.gradients(Way::together);
    const auto recomputed = block.gradients(Way::recomputed);
    for (std::size_t i = 0; i < apart.size(); ++i) {
      CHECK(test::same_bits(recomputed[i], together[i]));
      if (i + 1 < apart.size()) CHECK(test::same_bits(together[i], apart[i]));
    }
    CHECK(test::relative_error(test::to_doubles(together.back()), test::to_doubles(apart.back())) <=
          (gradient_dtype == DType::f32 ? 1e-6 : 0x1p-8));
  }
}

TEST_CASE("gradient totals: attention leaves lines, unless norms change its gradients") {
  const test::Rank rank;
  OwnedParameter of_queries("of_queries", {kWidth}, 1.0, DType::bf16);
  OwnedParameter of_keys("of_keys", {kWidth}, 1.0, DType::bf16);
  const Rotary rotary{
      rope_table(kRows, rope_frequencies(kWidth, 1e4), RopePairs::half_split, DType::f32), {}};
  for (const bool normed : {false, true}) {
    QkNorm norm;
    if (normed) {
      norm.weights = JoinedParameters({of_queries.parameter, of_keys.parameter});
      norm.epsilon = 1e-5f;
    }
    const auto total = std::make_shared<Tensor>();
    Tensor gradient, left;
    const Variable x = Variable::leaf(normal_tensor({2, kRows, 3 * kWidth}, DType::bf16, "x"));
    const auto keep = [&](Tensor dy) -> Gradients {
      gradient = dy;
      left = *total;
      return {dy};
    };
    const Variable qkv = differentiable(x.data(), {x}, false, keep, total);
    backward(attention(qkv, 1, 1, {}, rotary, norm),
             normal_tensor({2, kRows, kWidth}, DType::bf16, "dy"));
    REQUIRE(left.defined() == (test::kOnGpu && !normed));
    if (!left.defined()) continue;
    REQUIRE(left.shape() == Shape{2 * 2, 3 * kWidth});
    const Tensor sum = test::poisoned({3 * kWidth}, DType::f32);
    const Tensor expected = test::poisoned({3 * kWidth}, DType::f32);
    bias_backward(sum, left, Accumulate::no);
    bias_backward(expected, gradient, Accumulate::no);
    CHECK(test::relative_error(test::to_doubles(sum), test::to_doubles(expected)) <= 1e-6);
  }
}

TEST_CASE("gradient totals: a layer norm leaves the sum of its gradient's rows") {
  const test::Rank rank;
  OwnedParameter weight("weight", {kWidth}, 1.0, DType::f32);
  OwnedParameter bias("bias", {kWidth}, 1.0, DType::f32);
  const auto total = std::make_shared<Tensor>();
  Tensor gradient, left;
  const Variable x = Variable::leaf(normal_tensor({kRows, kWidth}, DType::f32, "x"));
  const auto keep = [&](Tensor dy) -> Gradients {
    gradient = dy;
    left = *total;
    return {dy};
  };
  const Variable y = differentiable(x.data(), {x}, false, keep, total);
  const Variable normed = layer_norm(y, weight.parameter, bias.parameter, 1e-5f);
  const Variable stream = scale(y, 2.0);  // its gradient comes first, and is in the norm's sum
  backward(add(stream, normed), normal_tensor({kRows, kWidth}, DType::f32, "dy"));
  const Tensor expected = test::poisoned({kWidth}, DType::f32);
  bias_backward(expected, gradient, Accumulate::no);
  REQUIRE(left.defined());
  CHECK(test::same_bits(left, expected));
}

TEST_CASE(
    "gradient totals: the product that makes GELU's gradient leaves lines for the bias before") {
  const test::Rank rank;
  matmul_options().gelu = GeluChoice::own;
  constexpr std::int64_t kHidden = 256;
  constexpr DType kType = DType::bf16;
  OwnedParameter fc("fc", {kWidth, kHidden}, 0.5, kType), fc_bias("fc_bias", {kHidden}, 0.5, kType);
  OwnedParameter proj("proj", {kHidden, kWidth}, 0.5, kType);
  fc_bias.gradient = test::poisoned({kHidden}, DType::f32);
  fc_bias.parameter.open_gradient(fc_bias.gradient);
  const Tensor x = normal_tensor({kRows, kWidth}, kType, "x"),
               dy = normal_tensor({kRows, kWidth}, kType, "dy");
  backward(gelu_mlp(Variable(x), fc.parameter, fc_bias.parameter, proj.parameter, Parameter(),
                    WeightLayout::in_out),
           dy);

  const Tensor pre = test::poisoned({kRows, kHidden}, kType), y = pre.clone(), dpre = pre.clone();
  linear_gelu_forward(y, pre, x, fc.data, Transpose::no, fc_bias.data);
  Tensor lines;
  linear_backward_input(dpre, dy, proj.data, Transpose::no, pre, GeluForm::tanh, &lines);
  const Tensor of_rows = test::poisoned({kHidden}, DType::f32), of_lines = of_rows.clone();
  bias_backward(of_rows, dpre, Accumulate::no);
  if (lines.defined()) {
    bias_backward(of_lines, lines, Accumulate::no);
    CHECK_FALSE(test::same_bits(of_lines, of_rows));
  }
  CHECK(test::same_bits(fc_bias.gradient, lines.defined() ? of_lines : of_rows));
}

TEST_CASE("gradient totals: a bias takes a total that was left, unless the gradient has changed") {
  const test::Rank rank;
  const Tensor ones = Tensor::full({kRows, kWidth}, DType::f32, 1.0);
  OwnedParameter weight("weight", {kWidth, kWidth}, 1.0, DType::f32);
  OwnedParameter bias("bias", {kWidth}, 1.0, DType::f32);
  OwnedParameter zeros("zeros", {kWidth, kWidth}, 0.0, DType::f32);
  enum class Other { none, contributes, adds_itself };
  for (const Other other : {Other::none, Other::contributes, Other::adds_itself}) {
    CAPTURE(static_cast<int>(other));
    bias.parameter.reset_gradient();
    const Variable y = linear(Variable(ones), weight.parameter, bias.parameter);
    Variable earlier;  // its backward pass runs after that of `result`
    if (other == Other::contributes) earlier = scale(y, 1.0);
    if (other == Other::adds_itself) earlier = linear(y, zeros.parameter, Parameter());
    const GradientTotal total = total_of_gradient(y);
    REQUIRE((total != nullptr) == test::kOnGpu);
    const Variable result = differentiable(y.data(), {y}, false, [=](Tensor dy) -> Gradients {
      if (total != nullptr) *total = Tensor::full({kWidth}, DType::f32, -7.0);
      return {dy};
    });
    backward(earlier.defined() ? add(earlier, result) : result, ones);
    float expected = kRows;
    if (other == Other::contributes) expected *= 2.0f;
    if (other == Other::none && test::kOnGpu) expected = -7.0f;
    CHECK(bias.gradient.to_vector<float>() == std::vector<float>(kWidth, expected));
  }
}

}  // namespace tessera
