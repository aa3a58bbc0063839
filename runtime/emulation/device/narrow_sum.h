// Sums of 8-bit products as Hopper's tensor cores form them, in 14 bits.
//
// The tensor cores take 32 products at a time. All of them, and the sum so far, are shifted to the largest exponent
// among them, and bits behind the first 14 are cut off. Every 128 products the sum is added to another in f32, and
// begins again, as cuBLASLt is assumed to do it.
// Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", 3.3.2 and 3.5.2. cuBLASLt does not say how often it adds
// in f32 without fast accumulation.
#pragma once

#include <cstdint>

namespace tessera::emulation {

inline constexpr int kNarrowBits = 14;
inline constexpr std::int64_t kNarrowStep = 32, kNarrowDepth = 128;

/// `sum` plus a[k] b[k * stride] over k below `depth`, at most kNarrowStep: one instruction.
float narrow_step(float sum, const float* a, const float* b, std::int64_t stride,
                  std::int64_t depth);

/// The sum of a[k] b[k * stride] over k below `depth`. Infinite or NaN as an f32 sum is.
float narrow_sum(const float* a, const float* b, std::int64_t stride, std::int64_t depth);

}  // namespace tessera::emulation
