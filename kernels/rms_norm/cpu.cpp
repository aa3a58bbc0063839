#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_chunks.h"
#include "kernels/rms_norm/op.h"
#include "kernels/rms_norm/row.h"

namespace tessera::cpu {
namespace {

template <typename T>
void forward(Out y, Out sum, Out rstd, const Tensor& x, const Tensor& residual,
             const Tensor& weight, float epsilon) {
  const std::int64_t C = x.size(-1);
  const std::int64_t N = x.numel() / C;
  const T *inputs = x.data<T>(), *weights = weight.data<T>();
  T *outputs = y.data<T>(), *sums = sum.defined() ? sum.data<T>() : nullptr;
  const T* residuals = sum.defined() ? residual.data<T>() : nullptr;
  compute_t<T>* rstds = rstd.data<compute_t<T>>();
  parallel_for(N, rows_per_chunk(N), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      if (sums != nullptr) add_row(sums + n * C, inputs + n * C, residuals + n * C, C);
      const T* row = (sums != nullptr ? sums : inputs) + n * C;
      rstds[n] = row_rstd(row, C, epsilon);
      normalize_row(outputs + n * C, row, weights, rstds[n], C);
    }
  });
}

// Computes dx of all rows, and returns the partial sums [chunks, C] of dweight.
template <typename T>
Tensor backward_rows(Out dx, const Tensor& dy, const Tensor& dsum, const Tensor& x,
                     const Tensor& weight, const Tensor& rstd) {
  using Real = compute_t<T>;
  const std::int64_t C = x.size(-1);
  const std::int64_t N = x.numel() / C;
  const std::int64_t chunk = rows_per_chunk(N);
  const CategoryScope scope(Category::workspace);
  const Tensor partials = Tensor::empty({chunk_count(N, chunk), C}, dtype_of<Real>);
  Real* sums = partials.data<Real>();
  T* to = dx.data<T>();
  const T *gradients = dy.data<T>(), *inputs = x.data<T>(), *weights = weight.data<T>();
  const T* others = dsum.defined() ? dsum.data<T>() : nullptr;
  const Real* rstds = rstd.data<Real>();
  parallel_for(N, chunk, [&](std::int64_t begin, std::int64_t end) {
    Real* dweight = sums + begin / chunk * C;
    std::fill(dweight, dweight + C, Real{0});
    std::vector<T> own(others != nullptr ? C : 0);  // dx of a row before dsum, which may be dx
    for (std::int64_t n = begin; n < end; ++n) {
      T* const row = others != nullptr ? own.data() : to + n * C;
      differentiate_row(row, dweight, gradients + n * C, inputs + n * C, weights, rstds[n], C);
      if (others != nullptr) add_row(to + n * C, row, others + n * C, C);
    }
  });
  return partials;
}

}  // namespace

void rms_norm_forward(Out y, Out sum, Out rstd, const Tensor& x, const Tensor& residual,
                      const Tensor& weight, float epsilon) {
  visit_floating(x.dtype(), [&](auto type) {
    forward<decltype(type)>(y, sum, rstd, x, residual, weight, epsilon);
  });
}

void rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& dsum, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, Accumulate accumulate_parameters) {
  const std::int64_t C = x.size(-1);
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const Tensor partials = backward_rows<T>(dx, dy, dsum, x, weight, rstd);
    if (!dweight.defined()) return;
    visit_floating(dweight.dtype(), [&](auto gradient_type) {
      using G = decltype(gradient_type);
      add_partials(dweight.data<G>(), partials.data<compute_t<T>>(), partials.size(0), C, C,
                   accumulate_parameters);
    });
  });
}

}  // namespace tessera::cpu
