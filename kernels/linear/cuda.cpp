#include "kernels/cuda/gemm.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/options.h"

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

}  // namespace

bool linear_forward(Out y, const Tensor& x, const Tensor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual) {
  Gemm product = forward(y, x, transpose_weight, bias.defined() ? Epilogue::bias : Epilogue::none);
  product.accumulate = residual.defined();
  if (is_empty(product)) return false;
  const auto address = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.raw() : nullptr;
  };
  return try_gemm(product, {.a = x.raw(),
                            .b = weight.raw(),
                            .c = y.raw(),
                            .bias = address(bias),
                            .addend = address(residual)});
}

bool linear_gelu_forward(Out y, Out pre, const Tensor& x, const Tensor& weight,
                         Transpose transpose_weight, const Tensor& bias) {
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
                           Transpose transpose_weight, const Tensor& pre) {
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

}  // namespace tessera::cuda
