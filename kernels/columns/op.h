// Columns of a matrix, and their copy.
//
// Results of one product lie side by side in a row: q, k and v, or gate and up. An operation on one of
// them takes its columns, as attention takes heads of a packed tensor (attention/op.h). The
// copy is for memory that outlives the row: a cache of keys and values.
#pragma once

#include "kernels/op.h"

namespace tessera {

/// Columns [first, first + count) of a [N, ...] tensor.
struct Columns {
  Tensor tensor;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// All columns of `tensor`, or their first or second half.
Columns all_columns(const Tensor& tensor);
Columns first_half(const Tensor& tensor);
Columns second_half(const Tensor& tensor);

/// y [N, count] = x's columns, of one dtype and in other memory.
void copy_columns(Out y, const Columns& x);

/// y's columns = x [N, count], of y's dtype or f32, in other memory. f32 is rounded.
void set_columns(const Columns& y, const Tensor& x);

namespace cpu {
decltype(tessera::copy_columns) copy_columns;
decltype(tessera::set_columns) set_columns;
}  // namespace cpu
namespace cuda {
decltype(tessera::copy_columns) copy_columns;
decltype(tessera::set_columns) set_columns;
}  // namespace cuda

}  // namespace tessera
