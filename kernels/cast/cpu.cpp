#include <bit>
#include <type_traits>

#include "kernels/cast/op.h"
#include "kernels/cpu/elementwise.h"

namespace tessera::cpu {
namespace {

// Rounds to float so that a later rounding to 16 bits gives what rounding the double at once would:
// an inexact result gets the odd one of its two neighbours, which is never a tie (Boldo, Melquiond
// 2008, "Emulation of FMA and correctly rounded sums", on rounding to odd).
float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const double back = nearest;
  const bool keep = back == x || x != x || (bits & 1u) != 0;
  const std::uint32_t odd = std::fabs(back) > std::fabs(x) ? bits - 1u : bits + 1u;
  return std::bit_cast<float>(keep ? bits : odd);
}

template <typename To, typename From>
void cast_elements(Out y, const Tensor& x) {
  const auto convert = [](compute_t<From> value) {
    if constexpr (sizeof(To) == 2 && std::is_same_v<From, double>) {
      return round_to_odd(value);
    } else {
      return value;
    }
  };
  elementwise(y.numel(), y.data<To>(), convert, x.data<From>());
}

}  // namespace

void cast(Out y, const Tensor& x) {
  visit_floating(y.dtype(), [&](auto to) {
    visit_floating(x.dtype(),
                   [&](auto from) { cast_elements<decltype(to), decltype(from)>(y, x); });
  });
}

}  // namespace tessera::cpu
