#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_chunks.h"
#include "kernels/layer_norm/op.h"

namespace tessera::cpu {
namespace {

template <typename T>
struct Moments {
  T mean;
  T rstd;
};

// Two passes, mean first: the shortcut E[x^2] - mean^2 cancels when the mean is much larger than
// the spread.
template <typename T>
Moments<compute_t<T>> row_moments(const T* __restrict__ x, std::int64_t C, float epsilon) {
  using Real = compute_t<T>;
  const Real sum = sum_of<Real>(C, [&](std::int64_t c) { return load(x[c]); });
  const Real mean = sum / static_cast<Real>(C);
  const Real squares = sum_of<Real>(C, [&](std::int64_t c) {
    const Real centered = load(x[c]) - mean;
    return centered * centered;
  });
  return {mean, 1 / std::sqrt(squares / static_cast<Real>(C) + static_cast<Real>(epsilon))};
}

template <typename T>
void normalize_row(T* __restrict__ y, const T* __restrict__ x, const T* __restrict__ weight,
                   const T* __restrict__ bias, Moments<compute_t<T>> moments, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) {
    const auto xhat = (load(x[c]) - moments.mean) * moments.rstd;
    store(y[c], xhat * load(weight[c]) + load(bias[c]));
  }
}

template <typename T>
void forward(Out y, Out sum, Out mean, Out rstd, const Tensor& x, const Tensor& residual,
             const Tensor& weight, const Tensor& bias, float epsilon) {
  using Real = compute_t<T>;
  const std::int64_t C = x.size(-1);
  const std::int64_t N = x.numel() / C;
  const T *inputs = x.data<T>(), *weights = weight.data<T>(), *biases = bias.data<T>();
  T *outputs = y.data<T>(), *sums = sum.defined() ? sum.data<T>() : nullptr;
  const T* residuals = sum.defined() ? residual.data<T>() : nullptr;
  Real* means = mean.data<Real>();
  Real* rstds = rstd.data<Real>();
  parallel_for(N, rows_per_chunk(N), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      if (sums != nullptr) add_row(sums + n * C, inputs + n * C, residuals + n * C, C);
      const T* row = (sums != nullptr ? sums : inputs) + n * C;
      const auto moments = row_moments(row, C, epsilon);
      means[n] = moments.mean;
      rstds[n] = moments.rstd;
      normalize_row(outputs + n * C, row, weights, biases, moments, C);
    }
  });
}

// Computes one row of dx, and adds dy * xhat to dweight and dy to dbias while the row is in L1.
template <typename T>
void backward_row(T* __restrict__ dx, compute_t<T>* __restrict__ dweight,
                  compute_t<T>* __restrict__ dbias, const T* __restrict__ dy,
                  const T* __restrict__ x, const T* __restrict__ weight,
                  Moments<compute_t<T>> moments, std::int64_t C) {
  using Real = compute_t<T>;
  const Real mean = moments.mean, rstd = moments.rstd;
  LaneSum<Real> sum_g, sum_g_xhat;
  for_each_lanes(C, [&](std::int64_t first, auto count) {
    Real gs[kLanes] = {}, gs_xhat[kLanes] = {};
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      const std::int64_t c = first + i;
      const Real xhat = (load(x[c]) - mean) * rstd;
      const Real gradient = load(dy[c]);
      gs[i] = gradient * load(weight[c]);
      gs_xhat[i] = gs[i] * xhat;
      dweight[c] += gradient * xhat;
      dbias[c] += gradient;
    }
    sum_g.add(gs);
    sum_g_xhat.add(gs_xhat);
  });
  const Real mean_g = sum_g.total() / static_cast<Real>(C);
  const Real mean_g_xhat = sum_g_xhat.total() / static_cast<Real>(C);
  for (std::int64_t c = 0; c < C; ++c) {
    const Real xhat = (load(x[c]) - mean) * rstd;
    const Real g = load(dy[c]) * load(weight[c]);
    store(dx[c], rstd * (g - mean_g - xhat * mean_g_xhat));
  }
}

// Computes dx of all rows, and returns the partial sums [chunks, 2, C] of dweight and dbias.
template <typename T>
Tensor backward_rows(Out dx, const Tensor& dy, const Tensor& dsum, const Tensor& x,
                     const Tensor& weight, const Tensor& mean, const Tensor& rstd) {
  using Real = compute_t<T>;
  const std::int64_t C = x.size(-1);
  const std::int64_t N = x.numel() / C;
  const std::int64_t chunk = rows_per_chunk(N);
  const CategoryScope scope(Category::workspace);
  const Tensor partials = Tensor::empty({chunk_count(N, chunk), 2, C}, dtype_of<Real>);
  Real* sums = partials.data<Real>();
  T* to = dx.data<T>();
  const T *gradients = dy.data<T>(), *inputs = x.data<T>(), *weights = weight.data<T>();
  const T* others = dsum.defined() ? dsum.data<T>() : nullptr;
  const Real *means = mean.data<Real>(), *rstds = rstd.data<Real>();
  parallel_for(N, chunk, [&](std::int64_t begin, std::int64_t end) {
    Real* dweight = sums + begin / chunk * 2 * C;
    Real* dbias = dweight + C;
    std::fill(dweight, dweight + 2 * C, Real{0});
    std::vector<T> own(others != nullptr ? C : 0);  // dx of a row before dsum, which may be dx
    for (std::int64_t n = begin; n < end; ++n) {
      T* const row = others != nullptr ? own.data() : to + n * C;
      backward_row(row, dweight, dbias, gradients + n * C, inputs + n * C, weights,
                   {means[n], rstds[n]}, C);
      if (others != nullptr) add_row(to + n * C, row, others + n * C, C);
    }
  });
  return partials;
}

}  // namespace

void layer_norm_forward(Out y, Out sum, Out mean, Out rstd, const Tensor& x, const Tensor& residual,
                        const Tensor& weight, const Tensor& bias, float epsilon) {
  visit_floating(x.dtype(), [&](auto type) {
    forward<decltype(type)>(y, sum, mean, rstd, x, residual, weight, bias, epsilon);
  });
}

void layer_norm_backward(Out dx, Out dweight, Out dbias, const Tensor& dy, const Tensor& dsum,
                         const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& rstd, Accumulate accumulate_parameters) {
  const std::int64_t C = x.size(-1);
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using Real = compute_t<T>;
    const Tensor partials = backward_rows<T>(dx, dy, dsum, x, weight, mean, rstd);
    const auto add_up = [&](Out gradient, const Real* sums) {
      if (!gradient.defined()) return;
      visit_floating(gradient.dtype(), [&](auto gradient_type) {
        using G = decltype(gradient_type);
        add_partials(gradient.data<G>(), sums, partials.size(0), 2 * C, C, accumulate_parameters);
      });
    };
    add_up(dweight, partials.data<Real>());
    add_up(dbias, partials.data<Real>() + C);
  });
}

}  // namespace tessera::cpu
