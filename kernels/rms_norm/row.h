// RMS norm of one row on the CPU (op.h has the formulas).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/numeric.h"

namespace tessera::cpu {

template <typename T>
compute_t<T> row_rstd(const T* __restrict__ x, std::int64_t C, float epsilon) {
  using Real = compute_t<T>;
  const Real squares = sum_of<Real>(C, [&](std::int64_t c) { return load(x[c]) * load(x[c]); });
  return 1 / std::sqrt(squares / static_cast<Real>(C) + static_cast<Real>(epsilon));
}

/// y may be wider than T: its elements are rounded to its own type.
template <typename Y, typename T>
void normalize_row(Y* __restrict__ y, const T* __restrict__ x, const T* __restrict__ weight,
                   compute_t<T> offset, compute_t<T> rstd, std::int64_t C) {
  for (std::int64_t c = 0; c < C; ++c) store(y[c], load(x[c]) * rstd * (offset + load(weight[c])));
}

/// Computes one row of dx, which may be dy, and adds dy * xhat to dweight while the row is in L1.
template <typename T>
void differentiate_row(T* dx, compute_t<T>* __restrict__ dweight, const T* dy,
                       const T* __restrict__ x, const T* __restrict__ weight, compute_t<T> offset,
                       compute_t<T> rstd, std::int64_t C) {
  using Real = compute_t<T>;
  const Real sum_g_xhat = sum_of<Real>(C, [&](std::int64_t c) {
    const Real dy_xhat = load(dy[c]) * (load(x[c]) * rstd);
    dweight[c] += dy_xhat;
    return dy_xhat * (offset + load(weight[c]));
  });
  const Real mean_g_xhat = sum_g_xhat / static_cast<Real>(C);
#pragma GCC ivdep
  for (std::int64_t c = 0; c < C; ++c) {
    const Real xhat = load(x[c]) * rstd;
    store(dx[c], rstd * (load(dy[c]) * (offset + load(weight[c])) - xhat * mean_g_xhat));
  }
}

}  // namespace tessera::cpu
