#include "kernels/bias/op.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/norm_rows.h"
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

}  // namespace

void layer_norm_forward(Out y, Out sum, Out mean, Out rstd, const Tensor& x, const Tensor& residual,
                        const Tensor& weight, const Tensor& bias, float epsilon) {
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *weights = weight.data<T>(), *biases = bias.data<T>();
    auto *means = mean.data<compute_t<T>>(), *rstds = rstd.data<compute_t<T>>();
    norm_rows<T>(y, sum, x, residual, [=, C = x.size(-1)](std::int64_t n, T* to, const T* from) {
      const auto moments = row_moments(from, C, epsilon);
      means[n] = moments.mean;
      rstds[n] = moments.rstd;
      normalize_row(to, from, weights, biases, moments, C);
    });
  });
}

void layer_norm_backward(Out dx, Out dx_total, Out dweight, Out dbias, const Tensor& dy,
                         const Tensor& dsum, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, Accumulate accumulate_parameters) {
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using Real = compute_t<T>;
    const T* weights = weight.data<T>();
    const Real *means = mean.data<Real>(), *rstds = rstd.data<Real>();
    const auto row = [=, C = x.size(-1)](std::int64_t n, T* to, Real* line, const T* gradient,
                                         const T* from) {
      backward_row(to, line, line + C, gradient, from, weights, {means[n], rstds[n]}, C);
    };
    const Tensor partials = norm_gradient_rows<T>(dx, dy, dsum, x, 2, row);
    add_lines<T>(dweight, partials, 0, accumulate_parameters);
    add_lines<T>(dbias, partials, 1, accumulate_parameters);
  });
  if (dx_total.defined()) cpu::bias_backward(dx_total, dx, Accumulate::no);
}

}  // namespace tessera::cpu
