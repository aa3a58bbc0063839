#include <algorithm>

#include "kernels/bias/op.h"
#include "kernels/bias/parts.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"

namespace tessera::cpu {
namespace {

// Rows per partial sum of backward: the partial sums are then a small part of the traffic, and a
// batch of a thousand tokens still gives work to sixteen threads.
constexpr std::int64_t kRowsPerPartial = BiasGradient::kRowsPerPartial;
// One thread adds the partial sums of so many columns.
constexpr std::int64_t kColumnChunk = 512;
// The partial sums of so many columns stay in registers, or in a few cache lines.
constexpr std::int64_t kColumnsOfPartial = 64;

std::int64_t rows_of(const Tensor& matrix) {
  const std::int64_t columns = matrix.size(-1);
  return columns == 0 ? 0 : matrix.numel() / columns;
}

/// A loop that adds the bias to the columns of a part of y, in rows [begin, end).
template <typename T>
auto add_to_rows(const Rectangle& part, const Tensor& y, const Tensor& bias) {
  return [first = y.data<T>() + part.column, b = bias.data<T>() + part.column, C = y.size(-1),
          columns = part.columns](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      T* const row = first + n * C;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < columns; ++c) store(row[c], load(row[c]) + load(b[c]));
    }
  };
}

/// Adds `columns` columns of rows that begin `C` elements apart to `sum`.
template <typename Sum, typename T>
inline void add_rows(Sum* sum, const T* row, std::int64_t rows, std::int64_t C,
                     std::int64_t columns) {
  for (std::int64_t n = 0; n < rows; ++n, row += C) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += load(row[c]);
  }
}

/// Calls f(To{}, From{}) with the types of the sums and of their terms.
template <typename F>
void visit_sums(DType to, DType from, const F& f) {
  visit_floating(from, [&](auto type) {
    using From = decltype(type);
    if (to == from) {
      f(From{}, From{});
    } else {
      f(float{}, From{});
    }
  });
}

Tensor workspace_for_sums(const Tensor& dy) {
  const CategoryScope scope(Category::workspace);
  return Tensor::empty({dy.size(1)}, statistics_dtype(dy.dtype()));
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
    add_rows(sum, first + begin * C, end - begin, C, C);
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
  const std::int64_t C = y.size(-1);
  const Rectangle all = {.rows = rows_of(y), .columns = C};
  const std::int64_t rows =
      std::max<std::int64_t>(1, kElementwiseChunk / std::max<std::int64_t>(1, C));
  visit_floating(y.dtype(), [&](auto type) {
    parallel_for(all.rows, rows, add_to_rows<decltype(type)>(all, y, bias));
  });
}

void bias_forward(Isa isa, const Rectangle& part, Out y, const Tensor& bias) {
  visit_floating(y.dtype(), [&](auto type) {
    run_loop(isa, add_to_rows<decltype(type)>(part, y, bias), part.row, part.row + part.rows);
  });
}

void bias_backward(Out dbias, const Tensor& dy, Accumulate accumulate) {
  visit_sums(dbias.dtype(), dy.dtype(), [&](auto to, auto from) {
    sum_rows<decltype(to), decltype(from)>(dbias, dy, accumulate);
  });
}

BiasGradient::BiasGradient(Out dbias, const Tensor& dy, Accumulate accumulate)
    : dbias_(dbias), dy_(dy), accumulate_(accumulate), sums_(workspace_for_sums(dy)) {}

void BiasGradient::add(Isa isa, const Rectangle& part) const {
  visit_sums(dbias_.dtype(), dy_.dtype(), [&](auto to, auto from) {
    const auto columns = [&](std::int64_t begin, std::int64_t end) {
      add<decltype(to), decltype(from)>({part.row, part.rows, begin, end - begin});
    };
    run_loop(isa, columns, part.column, part.column + part.columns);
  });
}

template <typename To, typename T>
void BiasGradient::add(const Rectangle& part) const {
  using Sum = compute_t<T>;
  const std::int64_t C = dy_.size(1), end = part.row + part.rows;
  for (std::int64_t column = 0; column < part.columns; column += kColumnsOfPartial) {
    const std::int64_t first = part.column + column;
    const std::int64_t columns = std::min(kColumnsOfPartial, part.columns - column);
    Sum* const sums = sums_.data<Sum>() + first;
    for (std::int64_t row = part.row; row < end; row += kRowsPerPartial) {
      Sum partial[kColumnsOfPartial] = {};
      const T* const rows = dy_.data<T>() + row * C + first;
      add_rows(partial, rows, std::min(kRowsPerPartial, end - row), C, columns);
      for (std::int64_t c = 0; c < columns; ++c) {
        sums[c] = row == 0 ? partial[c] : sums[c] + partial[c];
      }
    }
    if (end < dy_.size(0)) continue;
    To* const db = dbias_.data<To>() + first;
    for (std::int64_t c = 0; c < columns; ++c) {
      store_as(db[c], (accumulate_ == Accumulate::yes ? Sum(load(db[c])) : Sum(0)) + sums[c]);
    }
  }
}

}  // namespace tessera::cpu
