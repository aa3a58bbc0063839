#include "runtime/emulation/device/narrow_sum.h"

#include <algorithm>
#include <cmath>

namespace tessera::emulation {

float narrow_step(float sum, const float* a, const float* b, std::int64_t stride,
                  std::int64_t depth) {
  float terms[kNarrowStep + 1] = {sum};
  float largest = std::abs(sum), plain = sum;
  for (std::int64_t k = 0; k < depth; ++k) {
    terms[k + 1] = a[k] * b[k * stride];  // exact: 4 bits each
    largest = std::max(largest, std::abs(terms[k + 1]));
    plain += terms[k + 1];
  }
  if (!std::isfinite(plain) || largest == 0.0f) return plain;
  // Multiples of the last place, which is small enough that they add exactly.
  const int last = std::ilogb(largest) - (kNarrowBits - 1);
  double total = 0.0;
  for (std::int64_t i = 0; i <= depth; ++i)
    total += std::trunc(std::ldexp(double{terms[i]}, -last));
  return static_cast<float>(std::ldexp(total, last));
}

float narrow_sum(const float* a, const float* b, std::int64_t stride, std::int64_t depth) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < depth; begin += kNarrowDepth) {
    float sum = 0.0f;
    for (std::int64_t k = begin; k < std::min(begin + kNarrowDepth, depth); k += kNarrowStep) {
      sum = narrow_step(sum, a + k, b + k * stride, stride, std::min(kNarrowStep, depth - k));
    }
    total += sum;
  }
  return total;
}

}  // namespace tessera::emulation
