// GELU in its exact form; that of tanh is in tanh_form.h. With the normal distribution P and its density
// p(x) = e^(-x^2 / 2) / sqrt(2 pi)
//
//   y = x P(x),   dy/dx = P(x) + x p(x)
//
// For x <= 0, P(x) = erfc(z) / 2 with z = -x / sqrt(2). That is e^(-z^2) t times a smooth function of
// t = 1 / (1 + 0.3 z), which is a polynomial here. P(-x) = 1 - P(x). The C library's erf is not called,
// because its last bits differ between machines.
#include <array>
#include <numbers>

#include "kernels/cpu/elementwise.h"
#include "kernels/gelu/op.h"
#include "kernels/gelu/parts.h"
#include "kernels/gelu/tanh_form.h"

namespace tessera::cpu {
namespace {

/// erfc(z) e^(z^2) / (2 t) in powers of 2 t - 1, from the highest: interpolated at 64 Chebyshev points,
/// with a relative error of 10^-13.
constexpr std::array kTail = {
    -1.71257010108893742e-8,  -2.17033151560590164e-10, 1.88368630480800661e-7,
    3.00242687494211321e-8,   -1.39555389153544172e-6,  -8.70523779444092183e-7,
    9.52911369296287007e-6,   1.6364009106789011e-5,    -5.34923889024561119e-5,
    -0.000240673438952855025, -9.08705883547368817e-5,  0.00217804992917022677,
    0.0102007236882410642,    0.0284808190315892819,    0.0593593373419545584,
    0.0993905390218102009,    0.138261778378238996,     0.162489960929900522};

/// P(x) for power = e^(-x^2 / 2).
template <typename C>
inline C normal_distribution(C x, C power) {
  const C z = (x < 0 ? -x : x) * C(std::numbers::sqrt2 / 2);
  const C t = C(1) / std::fma(C(0.3), z, C(1));
  const C u = t + t - C(1);
  C sum = C(kTail[0]);
#pragma GCC unroll 17  // so that the loop over elements becomes vector instructions
  for (std::size_t i = 1; i < kTail.size(); ++i) sum = std::fma(sum, u, C(kTail[i]));
  const C tail = power * t * sum;
  return x < 0 ? tail : C(1) - tail;
}

struct Exact {
  template <typename C>
  static C value(C x) {
    return x * normal_distribution(x, exponential(C(-0.5) * x * x));
  }
  template <typename C>
  static C derivative(C x) {
    constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    const C power = exponential(C(-0.5) * x * x);
    return std::fma(x, C(kDensity) * power, normal_distribution(x, power));
  }
};

/// Calls f(TanhGelu()) or f(Exact()).
template <typename F>
void visit(GeluForm form, const F& f) {
  form == GeluForm::tanh ? f(TanhGelu()) : f(Exact());
}

/// Calls loop(y, f, x) with f(x) = gelu(x).
template <typename Loop>
void forward(const Tensor& y, const Tensor& x, GeluForm form, const Loop& loop) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    visit(form, [&](auto gelu) {
      loop(
          y.data<T>(), [](C v) { return decltype(gelu)::value(v); }, x.data<T>());
    });
  });
}

/// Calls loop(dx, f, dy, x) with f(dy, x) = dy gelu'(x).
template <typename Loop>
void backward(const Tensor& dx, const Tensor& dy, const Tensor& x, GeluForm form,
              const Loop& loop) {
  visit_floating(dx.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    visit(form, [&](auto gelu) {
      const auto gradient = [](C g, C v) { return g * decltype(gelu)::derivative(v); };
      loop(dx.data<T>(), gradient, dy.data<T>(), x.data<T>());
    });
  });
}

/// A loop over all elements of y.
auto over_all(const Tensor& y) {
  return [n = y.numel()](auto... arguments) { elementwise(n, arguments...); };
}
/// A loop over a part of y.
auto over_part(Isa isa, const Rectangle& part, const Tensor& y) {
  return
      [=, width = y.size(-1)](auto... arguments) { elementwise(isa, part, width, arguments...); };
}

}  // namespace

void gelu_forward(Out y, const Tensor& x, GeluForm form) {
  forward(y, x, form, over_all(y));
}
void gelu_backward(Out dx, const Tensor& dy, const Tensor& x, GeluForm form) {
  backward(dx, dy, x, form, over_all(dx));
}

void gelu_forward(Isa isa, const Rectangle& part, Out y, const Tensor& x, GeluForm form) {
  forward(y, x, form, over_part(isa, part, y));
}
void gelu_backward(Isa isa, const Rectangle& part, Out dx, const Tensor& dy, const Tensor& x,
                   GeluForm form) {
  backward(dx, dy, x, form, over_part(isa, part, dx));
}

}  // namespace tessera::cpu
