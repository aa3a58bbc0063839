// With u = sqrt(2 / pi) (x + 0.044715 x^3) and tanh(u) = 2 sigmoid(2u) - 1 the formula becomes
//
//   y     = x s,                       s = sigmoid(2u) = 1 / (1 + e^(-2u))
//   dy/dx = s + x s (1 - s) 2u',       2u' = 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
//
// This form has one exponential and, unlike 1 + tanh(u), does not cancel for negative x.
#include "kernels/cpu/elementwise.h"
#include "kernels/gelu/op.h"
#include "kernels/gelu/parts.h"

namespace tessera::cpu {
namespace {

constexpr double kLinear = 1.5957691216057307117597842397375;  // 2 sqrt(2 / pi)
constexpr double kCubic = 0.044715 * kLinear;

template <typename C>
inline C sigmoid_of_2u(C x) {
  const C minus_two_u = x * std::fma(C(-kCubic), x * x, C(-kLinear));
  return C(1) / (C(1) + exponential(minus_two_u));
}

/// Calls loop(y, f, x) with f(x) = gelu(x).
template <typename Loop>
void forward(const Tensor& y, const Tensor& x, const Loop& loop) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    loop(
        y.data<T>(), [](C v) { return v * sigmoid_of_2u(v); }, x.data<T>());
  });
}

/// Calls loop(dx, f, dy, x) with f(dy, x) = dy gelu'(x).
template <typename Loop>
void backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Loop& loop) {
  visit_floating(dx.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    const auto gradient = [](C g, C v) {
      const C s = sigmoid_of_2u(v);
      const C two_du = std::fma(C(3 * kCubic), v * v, C(kLinear));
      return g * std::fma(v * s * (C(1) - s), two_du, s);
    };
    loop(dx.data<T>(), gradient, dy.data<T>(), x.data<T>());
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

void gelu_forward(Out y, const Tensor& x) {
  forward(y, x, over_all(y));
}
void gelu_backward(Out dx, const Tensor& dy, const Tensor& x) {
  backward(dx, dy, x, over_all(dx));
}

void gelu_forward(Isa isa, const Rectangle& part, Out y, const Tensor& x) {
  forward(y, x, over_part(isa, part, y));
}
void gelu_backward(Isa isa, const Rectangle& part, Out dx, const Tensor& dy, const Tensor& x) {
  backward(dx, dy, x, over_part(isa, part, dx));
}

}  // namespace tessera::cpu
