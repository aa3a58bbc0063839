#include <algorithm>

#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/gemm.h"
#include "kernels/fp8/op.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/linear/factor.h"
#include "kernels/matmul/options.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

bool is_empty(const Gemm& product) {
  return product.M == 0 || product.N == 0 || product.K == 0;
}

/// Does the library's gelu epilogue suit the product? It uses the hardware's tanh, with a relative
/// error of 2^-11: less than the rounding of a 16-bit result, but 2^13 times that of an f32 result.
/// Rows of the saved input must be a multiple of 8 elements.
bool suits_gelu_epilogue(const Gemm& product) {
  return size_of(product.out) == 2 && product.N % 8 == 0;
}

Gemm forward(const Tensor& y, const Tensor& x, Transpose transpose_weight, Epilogue epilogue) {
  return {.M = y.size(0),
          .N = y.size(1),
          .K = x.size(1),
          .transpose_b = transpose_weight == Transpose::yes,
          .in = x.dtype(),
          .out = y.dtype(),
          .epilogue = epilogue};
}

/// The factor's rows or columns, in workspace memory if they are not there. Undefined if they have scales of blocks,
/// which are those of the other copy.
Tensor along_depth(const Factor& factor, bool columns) {
  const Tensor &there = columns ? factor.columns : factor.values,
               &other = columns ? factor.values : factor.columns;
  if (there.defined() || factor.blocks != Fp8Blocks::tensor) return there;
  const CategoryScope scope(Category::workspace);
  const Tensor transposed = Tensor::empty({other.size(1), other.size(0)}, other.dtype());
  tessera::fp8_transpose(transposed, other);
  return transposed;
}

void* address(const Tensor& tensor) {
  return tensor.defined() ? tensor.raw() : nullptr;
}

}  // namespace

bool linear_forward(Out y, const Tensor& x, const Tensor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual) {
  Gemm product = forward(y, x, transpose_weight, bias.defined() ? Epilogue::bias : Epilogue::none);
  product.accumulate = residual.defined();
  if (is_empty(product)) return false;
  return try_gemm(product, {.a = x.raw(),
                            .b = weight.raw(),
                            .c = y.raw(),
                            .bias = address(bias),
                            .addend = address(residual)});
}

bool linear_gelu_forward(Out y, Out pre, const Tensor& x, const Tensor& weight,
                         Transpose transpose_weight, const Tensor& bias) {
  if (bias.defined() && matmul_options().gelu == GeluChoice::own &&
      cuda::matmul_gelu(y, pre, x, weight, bias, transpose_weight)) {
    return true;
  }
  const Gemm product = forward(y, x, transpose_weight, Epilogue::bias_gelu);
  if (!bias.defined() || is_empty(product) || !suits_gelu_epilogue(product)) return false;
  return try_gemm(
      product,
      {.a = x.raw(), .b = weight.raw(), .c = y.raw(), .bias = bias.raw(), .aux = pre.raw()});
}

bool linear_swiglu_forward(Out y, Out gate_up, const Tensor& x, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& bias) {
  if (bias.defined() || !takes_swiglu_epilogue(matmul_options().swiglu, x.size(1))) return false;
  const Tensor matrix = weight.reshape({1, weight.size(0), weight.size(1)});
  return cuda::grouped_matmul_swiglu(y, gate_up, x, matrix, /*offsets=*/{}, transpose_weight);
}

bool linear_backward_input(Out dx, const Tensor& dy, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& pre, Tensor* row_sums) {
  if (pre.defined() && matmul_options().gelu == GeluChoice::own &&
      cuda::matmul_gelu_backward(dx, row_sums, dy, weight, pre, opposite(transpose_weight))) {
    return true;
  }
  const Gemm product{.M = dx.size(0),
                     .N = dx.size(1),
                     .K = dy.size(1),
                     .transpose_b = transpose_weight == Transpose::no,
                     .in = dy.dtype(),
                     .out = dx.dtype(),
                     .epilogue = Epilogue::gelu_backward};
  if (!pre.defined() || is_empty(product) || !suits_gelu_epilogue(product)) return false;
  return try_gemm(product, {.a = dy.raw(), .b = weight.raw(), .c = dx.raw(), .aux = pre.raw()});
}

bool swiglu_linear_backward_input(Out dgate_up, const Tensor& dy, const Tensor& weight,
                                  Transpose transpose_weight, const Tensor& gate_up) {
  if (!takes_swiglu_epilogue(matmul_options().swiglu, dy.size(1))) return false;
  const Tensor matrix = weight.reshape({1, weight.size(0), weight.size(1)});
  return cuda::grouped_matmul_swiglu_backward({}, {}, dgate_up, dy, matrix, gate_up, /*offsets=*/{},
                                              {}, {}, opposite(transpose_weight));
}

bool multiplies_fp8(const Device&, std::initializer_list<std::int64_t> extents, Fp8Blocks blocks) {
  constexpr std::int64_t kMultiple = 16;
  return (blocks == Fp8Blocks::tensor ? gpu::has_fp8() : gpu::has_fp8_blocks()) &&
         std::ranges::all_of(extents, [](std::int64_t extent) { return extent % kMultiple == 0; });
}

bool fp8_product(Out c, const Factor& a, Transpose transpose_a, const Factor& b,
                 Transpose transpose_b, const Tensor& bias, const Tensor& addend) {
  // 8-bit tensor cores read both factors along the depth: a [M, K] and b [N, K].
  const bool transposes_a = transpose_a == Transpose::yes,
             transposes_b = transpose_b == Transpose::no;
  const std::int64_t M = c.size(0), N = c.size(1), K = a.size(transposes_a ? 0 : 1);
  const bool suits = cuda::multiplies_fp8(c.device(), {K, N, transposes_a ? M : K}, a.blocks);
  if (c.numel() == 0 || K == 0 || !suits) return false;
  const Tensor a_rows = along_depth(a, transposes_a), b_rows = along_depth(b, transposes_b);
  if (!a_rows.defined() || !b_rows.defined()) return false;
  const auto scales = [](const Factor& factor, bool columns) {
    return (columns ? factor.inverse_of_columns : factor.inverse_scale).data<float>();
  };
  const Gemm product{.M = M,
                     .N = N,
                     .K = K,
                     .transpose_b = true,
                     .accumulate = addend.defined(),
                     .in = a_rows.dtype(),
                     .in_b = b_rows.dtype(),
                     .a_blocks = a.blocks,
                     .b_blocks = b.blocks,
                     .out = c.dtype(),
                     .epilogue = bias.defined() ? Epilogue::bias : Epilogue::none};
  return try_gemm(product, {.a = a_rows.raw(),
                            .b = b_rows.raw(),
                            .c = c.raw(),
                            .bias = address(bias),
                            .addend = address(addend),
                            .a_scale = scales(a, transposes_a),
                            .b_scale = scales(b, transposes_b)});
}

}  // namespace tessera::cuda
