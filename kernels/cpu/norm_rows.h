// Loops over the rows of a norm with a residual: y is made of x, or of the sum of x and the residual.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_chunks.h"

namespace tessera::cpu {

/// Calls `row(n, y, x)` for every row of x [N, C], or of `sum`, which becomes x + residual.
template <typename T, typename Row>
void norm_rows(Out y, Out sum, const Tensor& x, const Tensor& residual, Row row) {
  const std::int64_t C = x.size(-1), N = x.numel() / C;
  const T* inputs = x.data<T>();
  T *outputs = y.data<T>(), *sums = sum.defined() ? sum.data<T>() : nullptr;
  const T* residuals = sum.defined() ? residual.data<T>() : nullptr;
  parallel_for(N, rows_per_chunk(N), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      if (sums != nullptr) add_row(sums + n * C, inputs + n * C, residuals + n * C, C);
      row(n, outputs + n * C, (sums != nullptr ? sums : inputs) + n * C);
    }
  });
}

/// Calls `row(n, dx, line, dy, x)` for every row. dsum, which may be dx, is added to a row of dx. Each
/// parameter has C numbers of the line that a chunk's rows add to. Returns the lines
/// [chunks, parameters, C].
template <typename T, typename Row>
Tensor norm_gradient_rows(Out dx, const Tensor& dy, const Tensor& dsum, const Tensor& x,
                          std::int64_t parameters, Row row) {
  using Real = compute_t<T>;
  const std::int64_t C = x.size(-1), N = x.numel() / C, chunk = rows_per_chunk(N);
  const CategoryScope scope(Category::workspace);
  const Tensor partials = Tensor::empty({chunk_count(N, chunk), parameters, C}, dtype_of<Real>);
  Real* lines = partials.data<Real>();
  T* to = dx.data<T>();
  const T *gradients = dy.data<T>(), *inputs = x.data<T>();
  const T* others = dsum.defined() ? dsum.data<T>() : nullptr;
  parallel_for(N, chunk, [&](std::int64_t begin, std::int64_t end) {
    Real* line = lines + begin / chunk * parameters * C;
    std::fill(line, line + parameters * C, Real{0});
    std::vector<T> own(others != nullptr ? C : 0);  // dx of a row before dsum
    for (std::int64_t n = begin; n < end; ++n) {
      T* const gradient = others != nullptr ? own.data() : to + n * C;
      row(n, gradient, line, gradients + n * C, inputs + n * C);
      if (others != nullptr) add_row(to + n * C, gradient, others + n * C, C);
    }
  });
  return partials;
}

/// Adds the lines of one parameter to its gradient, if it is defined.
template <typename T>
void add_lines(Out gradient, const Tensor& partials, std::int64_t parameter,
               Accumulate accumulate) {
  if (!gradient.defined()) return;
  const std::int64_t C = partials.size(2);
  visit_floating(gradient.dtype(), [&](auto type) {
    add_partials(gradient.data<decltype(type)>(), partials.data<compute_t<T>>() + parameter * C,
                 partials.size(0), partials.size(1) * C, C, accumulate);
  });
}

}  // namespace tessera::cpu
