#include "kernels/cpu/norm_rows.h"
#include "kernels/rms_norm/op.h"
#include "kernels/rms_norm/row.h"

namespace tessera::cpu {

void rms_norm_forward(Out y, Out sum, Out rstd, const Tensor& x, const Tensor& residual,
                      const Tensor& weight, float epsilon, float offset) {
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* weights = weight.data<T>();
    auto* rstds = rstd.data<compute_t<T>>();
    norm_rows<T>(y, sum, x, residual, [=, C = x.size(-1)](std::int64_t n, T* to, const T* from) {
      rstds[n] = row_rstd(from, C, epsilon);
      normalize_row(to, from, weights, offset, rstds[n], C);
    });
  });
}

void rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& dsum, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, Accumulate accumulate_parameters,
                       float offset) {
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using Real = compute_t<T>;
    const T* weights = weight.data<T>();
    const Real* rstds = rstd.data<Real>();
    const auto row = [=, C = x.size(-1)](std::int64_t n, T* to, Real* line, const T* gradient,
                                         const T* from) {
      differentiate_row(to, line, gradient, from, weights, offset, rstds[n], C);
    };
    const Tensor partials = norm_gradient_rows<T>(dx, dy, dsum, x, 1, row);
    add_lines<T>(dweight, partials, 0, accumulate_parameters);
  });
}

}  // namespace tessera::cpu
