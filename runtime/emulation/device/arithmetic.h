// The errors of a GPU's approximate functions, where the host's functions are exact to rounding.
//
// Off by default: results are then the host's. Switched on, every function below is wrong by up to
// the error that its manual allows, by an amount that depends on the argument alone. A test fails if
// its tolerance leaves no room for these errors.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera::emulation {

enum class Arithmetic : std::uint8_t {
  exact,        // correctly rounded or the host library's
  approximate,  // off by the units in the last place that CUDA's manuals give
};

inline std::atomic<Arithmetic> current_arithmetic{Arithmetic::exact};

/// For kernels that run from now on, in the whole process.
inline void set_arithmetic(Arithmetic arithmetic) {
  current_arithmetic.store(arithmetic, std::memory_order_relaxed);
}
inline bool is_approximate() {
  return current_arithmetic.load(std::memory_order_relaxed) == Arithmetic::approximate;
}

/// `exact`, a function's value at x, moved by -ulps to ulps units in the last place.
inline float approximated(float exact, float x, int ulps) {
  if (!is_approximate() || !std::isfinite(exact) || std::fabs(exact) < 0x1p-120f) return exact;
  const unsigned hash = std::bit_cast<unsigned>(x) * 2654435761u >> 16;
  const int steps = static_cast<int>(hash % static_cast<unsigned>(2 * ulps + 1)) - ulps;
  const float moved = std::bit_cast<float>(std::bit_cast<int>(exact) + steps);
  return std::isfinite(moved) ? moved : exact;
}

/// As the instructions with .ftz do: a result below the normal numbers is 0.
inline float flushed(float x) {
  return is_approximate() && std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}

/// The same for e^x and 2^x. The manuals say that these are 1 at 0.
inline float approximated_power(float exact, float x, int ulps) {
  return x == 0.0f ? exact : approximated(exact, x, ulps);
}

// PTX ISA: ex2.approx.ftz.f32 has a relative error of 2^-22.5 at most, rcp.approx.ftz.f32 one unit.
inline float approximate_exp2(float x) {
  return flushed(approximated_power(std::exp2(x), x, 2));
}
inline float approximate_reciprocal(float x) {
  return flushed(approximated(1.0f / x, x, 1));
}

}  // namespace tessera::emulation

// The standard functions with the errors of "CUDA C++ Programming Guide", "Mathematical Functions
// Appendix". Device code is in namespaces inside `tessera`, so its calls find these first.
namespace tessera {

inline float expf(float x) {
  return emulation::approximated_power(std::exp(x), x, 2);
}
inline float exp2f(float x) {
  return emulation::approximated_power(std::exp2(x), x, 2);
}
inline float logf(float x) {
  return emulation::approximated(std::log(x), x, 1);
}
inline float tanhf(float x) {
  return emulation::approximated(std::tanh(x), x, 2);
}

}  // namespace tessera
