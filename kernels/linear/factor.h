// Linear layers (op.h) with factors that may be 8-bit numbers over scales (kernels/fp8/op.h).
//
// Either both factors of a product are 8-bit, or none. Outputs, bias, residual and pre are bf16 then, and dweight and
// dbias bf16 or f32. On a GPU with 8-bit tensor cores cuBLASLt multiplies the numbers as they are, if the extents of
// the weight are multiples of 16, and of a weight's gradient the rows, too. With scales of blocks it is a GPU of
// architecture 9.0, and the rows of other products are a multiple of 4. Else the factors are expanded to
// bf16 in workspace memory. Both ways have the same terms, and gelu and swiglu are separate operations in both.
#pragma once

#include "kernels/fp8/op.h"
#include "kernels/linear/op.h"

namespace tessera {

/// A tensor, or 8-bit numbers. 8-bit tensor cores read a matrix along the depth of a sum: its rows, or its columns.
struct Factor {
  /// 8-bit numbers may be there as `columns` alone.
  Tensor values;
  /// f32, the value of the number 1: [1], or as fp8_scales_shape() has it. Undefined unless they are 8-bit.
  Tensor inverse_scale = {};
  /// [C, N], the transposed copy of 8-bit `values` [N, C], or of equal parts of their rows, [L, C, N / L]. May be
  /// undefined.
  Tensor columns = {};
  /// That of `columns`. Blocks of columns are not those of rows, so vectors of 128 have other numbers, too.
  Tensor inverse_of_columns = {};
  Fp8Blocks blocks = Fp8Blocks::tensor;

  Factor(Tensor values = {}) : values(std::move(values)) {}  // NOLINT: a tensor is a factor
  Factor(Tensor values, Tensor inverse_scale, Tensor columns = {})
      : values(std::move(values)),
        inverse_scale(std::move(inverse_scale)),
        columns(std::move(columns)),
        inverse_of_columns(this->inverse_scale) {}

  bool defined() const { return values.defined() || columns.defined(); }
  bool is_fp8() const { return inverse_scale.defined() || inverse_of_columns.defined(); }
  std::int64_t numel() const { return values.defined() ? values.numel() : columns.numel(); }
  /// The factor is a matrix if there are columns alone.
  std::int64_t size(int dimension) const {
    if (values.defined()) return values.size(dimension);
    return dimension == 0 ? columns.numel() / columns.size(-2) : columns.size(-2);
  }
  /// Its columns alone, if they are there.
  Factor by_columns() const {
    if (!columns.defined()) return *this;
    Factor alone = *this;
    alone.values = {};
    if (blocks != Fp8Blocks::tensor) alone.inverse_scale = {};
    return alone;
  }
  /// As a sum over its rows reads it: by columns if these have other numbers.
  Factor over_rows() const { return blocks == Fp8Blocks::vectors ? by_columns() : *this; }
};

/// Whether both are 8-bit. Raises Error if one is.
bool are_fp8(const Factor& a, const Factor& b);
/// Whether the device multiplies 8-bit numbers as they are, in products that read rows of these extents.
bool multiplies_fp8(const Device& device, std::initializer_list<std::int64_t> extents,
                    Fp8Blocks blocks = Fp8Blocks::tensor);
/// The dtype of a product with the factor: bf16 if it is 8-bit, else its own.
DType product_dtype(const Factor& factor);
/// 8-bit numbers as bf16, in workspace memory; another tensor itself.
Tensor expanded(const Factor& factor);

void linear_forward(Out y, const Factor& x, const Factor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual = {});
void linear_gelu_forward(Out y, Out pre, const Factor& x, const Factor& weight,
                         Transpose transpose_weight, const Tensor& bias, GeluForm form);
void linear_swiglu_forward(Out y, Out gate_up, const Factor& x, const Factor& weight,
                           Transpose transpose_weight, const Tensor& bias, Gate activation);
void linear_backward_input(Out dx, const Factor& dy, const Factor& weight,
                           Transpose transpose_weight);
/// x was gelu(pre), and dx is the gradient of pre. 8-bit products have no row_sums.
void linear_backward_input(Out dx, const Factor& dy, const Factor& weight,
                           Transpose transpose_weight, const Tensor& pre, GeluForm form,
                           Tensor* row_sums = nullptr);
void swiglu_linear_backward_input(Out dgate_up, Out dx, const Factor& dy, const Factor& weight,
                                  Transpose transpose_weight, const Tensor& gate_up,
                                  Gate activation);
void linear_backward_weight(Out dweight, Out dbias, const Factor& x, const Factor& dy,
                            Transpose transpose_weight, Accumulate accumulate_dweight,
                            Accumulate accumulate_dbias);

namespace cuda {
decltype(tessera::multiplies_fp8) multiplies_fp8;
/// c [M, N] = op(a) op(b) + bias [N] + addend [M, N], with 8-bit a and b. bias and addend may be undefined, and addend
/// may be c. False, and nothing is done, if the GPU, the extents or the addresses do not suit.
bool fp8_product(Out c, const Factor& a, Transpose transpose_a, const Factor& b,
                 Transpose transpose_b, const Tensor& bias, const Tensor& addend);
}  // namespace cuda

}  // namespace tessera
