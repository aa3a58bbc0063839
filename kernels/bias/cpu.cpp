#include <algorithm>

#include "kernels/bias/op.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"

namespace tessera::cpu {
namespace {

// Rows per partial sum of backward: the partial sums are then a small part of the traffic, and a
// batch of a thousand tokens still gives work to sixteen threads.
constexpr std::int64_t kRowsPerPartial = 64;
// Columns whose partial sums one thread adds.
constexpr std::int64_t kColumnChunk = 512;

std::int64_t rows_of(const Tensor& matrix) {
  const std::int64_t columns = matrix.size(-1);
  return columns == 0 ? 0 : matrix.numel() / columns;
}

template <typename T>
void add_to_rows(Out y, const Tensor& bias) {
  const std::int64_t C = y.size(-1);
  T* const first = y.data<T>();
  const T* const b = bias.data<T>();
  const std::int64_t rows =
      std::max<std::int64_t>(1, kElementwiseChunk / std::max<std::int64_t>(1, C));
  parallel_for(rows_of(y), rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      T* const row = first + n * C;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < C; ++c) store(row[c], load(row[c]) + load(b[c]));
    }
  });
}

/// Row p of the result is the sum of the p-th kRowsPerPartial rows of dy.
template <typename T>
Tensor sum_rows_in_parts(const Tensor& dy) {
  using Sum = compute_t<T>;
  const std::int64_t N = rows_of(dy), C = dy.size(-1);
  const CategoryScope scope(Category::workspace);
  const Tensor partials = Tensor::empty({chunk_count(N, kRowsPerPartial), C}, dtype_of<Sum>);
  Sum* const sums = partials.data<Sum>();
  const T* const first = dy.data<T>();
  parallel_for(N, kRowsPerPartial, [&](std::int64_t begin, std::int64_t end) {
    Sum* const sum = sums + begin / kRowsPerPartial * C;
    std::fill(sum, sum + C, Sum(0));
    for (std::int64_t n = begin; n < end; ++n) {
      const T* const row = first + n * C;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < C; ++c) sum[c] += load(row[c]);
    }
  });
  return partials;
}

template <typename To, typename T>
void sum_rows(Out dbias, const Tensor& dy, Accumulate accumulate) {
  using Sum = compute_t<T>;
  Tensor partials = sum_rows_in_parts<T>(dy);
  const std::int64_t parts = partials.size(0), C = dy.size(-1);
  Sum* const total = partials.data<Sum>();  // the others are added to the first partial sum
  To* const db = dbias.data<To>();
  parallel_for(C, kColumnChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = 1; p < parts; ++p) {
      const Sum* const part = total + p * C;
#pragma GCC ivdep
      for (std::int64_t c = begin; c < end; ++c) total[c] += part[c];
    }
    for (std::int64_t c = begin; c < end; ++c) {
      const Sum before = accumulate == Accumulate::yes ? Sum(load(db[c])) : Sum(0);
      store_as(db[c], before + (parts > 0 ? total[c] : Sum(0)));
    }
  });
}

}  // namespace

void bias_forward(Out y, const Tensor& bias) {
  visit_floating(y.dtype(), [&](auto type) { add_to_rows<decltype(type)>(y, bias); });
}

void bias_backward(Out dbias, const Tensor& dy, Accumulate accumulate) {
  visit_floating(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    if (dbias.dtype() == dy.dtype()) {
      sum_rows<T, T>(dbias, dy, accumulate);
    } else {
      sum_rows<float, T>(dbias, dy, accumulate);
    }
  });
}

}  // namespace tessera::cpu
