// Grouped products (op.h, factor.h) of the rows of tokens, where these are.
//
// Dispatched row places[n, s] is row n of the tokens (kernels/dispatch/op.h). On Hopper the kernel reads rows of 16 bits
// where they are (hopper/gather.h), if they are aligned to 16 bytes. One operand of a product can be read so.
// Elsewhere rows are dispatched to workspace memory first. Both ways have the same bits.
#pragma once

#include <utility>

#include "kernels/grouped_matmul/factor.h"

namespace tessera {

/// Rows by expert [P, C] or, with `places`, the rows of N = P / k tokens [N, C].
struct RoutedRows {
  Factor values;
  Tensor places = {};  // [N, k] i32
  Tensor slots = {};   // [P] i32, their reverse; may be undefined, and the rows are dispatched then

  RoutedRows(Factor rows = {}) : values(std::move(rows)) {}  // NOLINT: rows by expert are rows
  RoutedRows(const Tensor& tokens, Tensor places, Tensor slots)
      : values(tokens), places(std::move(places)), slots(std::move(slots)) {}

  bool of_tokens() const { return places.defined(); }
  /// The extents [P, C] of the rows by expert.
  std::int64_t size(int dimension) const {
    return of_tokens() && dimension == 0 ? places.numel() : values.size(dimension);
  }
};

/// Whether products read the rows of these tokens [N, C] where they are. A caller with several products of other
/// rows dispatches them once.
bool gathers_rows(const Tensor& tokens);
/// The rows by expert: in workspace memory if they were tokens'.
Factor dispatched(const RoutedRows& rows);
/// 16-bit rows, or wider ones, in place of 8-bit ones (kernels/linear/factor.h).
RoutedRows expanded_rows(const RoutedRows& rows);

void grouped_matmul(Out c, const RoutedRows& a, const Factor& b, const Tensor& offsets,
                    Transpose transpose_b);
void grouped_matmul_swiglu(Out y, Out c, const RoutedRows& a, const Factor& b,
                           const Tensor& offsets, Transpose transpose_b);
void grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const RoutedRows& a,
                                    const Factor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights, Transpose transpose_b);
void grouped_matmul_weight(Out c, const RoutedRows& a, const RoutedRows& b, const Tensor& offsets,
                           Accumulate accumulate);

namespace cuda {
decltype(tessera::gathers_rows) gathers_rows;
/// grouped_matmul of the rows of tokens, or grouped_matmul_swiglu if y is defined. False, and nothing is done, if no
/// kernel gathers them.
bool gathered_grouped_matmul(Out y, Out c, const RoutedRows& a, const Tensor& b,
                             const Tensor& offsets, Transpose transpose_b);
bool gathered_grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const RoutedRows& a,
                                             const Tensor& b, const Tensor& gate_up,
                                             const Tensor& offsets, const Tensor& slots,
                                             const Tensor& weights, Transpose transpose_b);
bool gathered_grouped_matmul_weight(Out c, const RoutedRows& a, const RoutedRows& b,
                                    const Tensor& offsets, Accumulate accumulate);
}  // namespace cuda

}  // namespace tessera
