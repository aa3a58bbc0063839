#include "kernels/linear/factor.h"

#include "kernels/bias/op.h"
#include "kernels/fp8/op.h"
#include "kernels/observer.h"
#include "runtime/backends.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// c = op(a) op(b) + bias + addend as 8-bit numbers. False, and nothing is done, if no product takes them.
bool multiply_fp8(std::string_view op, Out c, const Factor& a, Transpose transpose_a,
                  const Factor& b, Transpose transpose_b, const Tensor& bias,
                  const Tensor& addend) {
  bool done = false;
  if constexpr (kHasCuda) {
    if (c.device().is_cpu()) return false;
    const auto run = [&] {
      done = cuda::fp8_product(c, a, transpose_a, b, transpose_b, bias, addend);
    };
    run_observed(op, run, c, a.values, a.columns, b.values, b.columns, bias, addend);
  }
  return done;
}

/// The numbers row by row.
Tensor rows_of(const Factor& factor) {
  if (factor.values.defined()) return factor.values;
  const CategoryScope scope(Category::workspace);
  const Tensor rows = Tensor::empty({factor.size(0), factor.size(1)}, factor.columns.dtype());
  fp8_transpose(rows, factor.columns);
  return rows;
}

}  // namespace

bool are_fp8(const Factor& a, const Factor& b) {
  check(a.is_fp8() == b.is_fp8(), "a product of 8-bit numbers needs two 8-bit factors");
  return a.is_fp8();
}

bool multiplies_fp8(const Device& device, std::initializer_list<std::int64_t> extents,
                    Fp8Blocks blocks) {
  if constexpr (kHasCuda) return !device.is_cpu() && cuda::multiplies_fp8(device, extents, blocks);
  return false;
}

DType product_dtype(const Factor& factor) {
  return factor.is_fp8() ? DType::bf16 : factor.values.dtype();
}

Tensor expanded(const Factor& factor) {
  if (!factor.is_fp8()) return factor.values;
  const CategoryScope scope(Category::workspace);
  const Tensor rows = rows_of(factor), x = Tensor::empty(rows.shape(), DType::bf16);
  const bool by_rows = factor.values.defined();
  const Tensor& inverse = by_rows ? factor.inverse_scale : factor.inverse_of_columns;
  if (factor.blocks == Fp8Blocks::tensor) {
    fp8_expand(x, rows, inverse);
  } else {
    fp8_expand_blocks(x, rows, inverse, factor.blocks, by_rows ? Transpose::no : Transpose::yes);
  }
  return x;
}

void linear_forward(Out y, const Factor& x, const Factor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual) {
  if (are_fp8(x, weight) && multiply_fp8("fp8_linear_forward", y, x, Transpose::no, weight,
                                         transpose_weight, bias, residual)) {
    return;
  }
  linear_forward(y, expanded(x), expanded(weight), transpose_weight, bias, residual);
}

void linear_gelu_forward(Out y, Out pre, const Factor& x, const Factor& weight,
                         Transpose transpose_weight, const Tensor& bias, GeluForm form) {
  if (!are_fp8(x, weight)) {
    return linear_gelu_forward(y, pre, x.values, weight.values, transpose_weight, bias, form);
  }
  linear_forward(pre, x, weight, transpose_weight, bias);
  gelu_forward(y, pre, form);
}

void linear_swiglu_forward(Out y, Out gate_up, const Factor& x, const Factor& weight,
                           Transpose transpose_weight, const Tensor& bias, Gate activation) {
  if (!are_fp8(x, weight)) {
    return linear_swiglu_forward(y, gate_up, x.values, weight.values, transpose_weight, bias,
                                 activation);
  }
  linear_forward(gate_up, x, weight, transpose_weight, bias);
  swiglu_forward(y, first_half(gate_up), second_half(gate_up), activation);
}

void linear_backward_input(Out dx, const Factor& dy, const Factor& weight,
                           Transpose transpose_weight) {
  if (are_fp8(dy, weight) && multiply_fp8("fp8_linear_backward_input", dx, dy, Transpose::no,
                                          weight, opposite(transpose_weight), {}, {})) {
    return;
  }
  linear_backward_input(dx, expanded(dy), expanded(weight), transpose_weight, Tensor());
}

void linear_backward_input(Out dx, const Factor& dy, const Factor& weight,
                           Transpose transpose_weight, const Tensor& pre, GeluForm form,
                           Tensor* row_sums) {
  if (!are_fp8(dy, weight)) {
    return linear_backward_input(dx, dy.values, weight.values, transpose_weight, pre, form,
                                 row_sums);
  }
  if (row_sums != nullptr) *row_sums = {};
  linear_backward_input(dx, dy, weight, transpose_weight);
  gelu_backward(dx, dx, pre, form);
}

void swiglu_linear_backward_input(Out dgate_up, Out dx, const Factor& dy, const Factor& weight,
                                  Transpose transpose_weight, const Tensor& gate_up,
                                  Gate activation) {
  if (!are_fp8(dy, weight)) {
    return swiglu_linear_backward_input(dgate_up, dx, dy.values, weight.values, transpose_weight,
                                        gate_up, activation);
  }
  linear_backward_input(dx, dy, weight, transpose_weight);
  swiglu_backward(first_half(dgate_up), second_half(dgate_up), dx, first_half(gate_up),
                  second_half(gate_up), activation);
}

void linear_backward_weight(Out dweight, Out dbias, const Factor& x, const Factor& dy,
                            Transpose transpose_weight, Accumulate accumulate_dweight,
                            Accumulate accumulate_dbias) {
  const bool as_stored = transpose_weight == Transpose::no;
  const Tensor addend = accumulate_dweight == Accumulate::yes ? dweight : Tensor();
  if (are_fp8(x, dy) &&
      multiply_fp8("fp8_linear_backward_weight", dweight, as_stored ? x : dy, Transpose::yes,
                   as_stored ? dy : x, Transpose::no, {}, addend)) {
    if (dbias.defined()) bias_backward(dbias, expanded(dy.over_rows()), accumulate_dbias);
    return;
  }
  linear_backward_weight(dweight, dbias, expanded(x.over_rows()), expanded(dy.over_rows()),
                         transpose_weight, accumulate_dweight, accumulate_dbias);
}

}  // namespace tessera
