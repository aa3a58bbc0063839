// runtime/random.h in device code, with the same bits at the same addresses.
#pragma once

#include "kernels/cuda/language.h"
#include "runtime/random.h"
#include "runtime/step_values.h"

namespace tessera::gpu {

/// Philox4x32 (Salmon et al. 2011). A 32x32-bit product with both halves is one instruction
/// (IMAD.WIDE), so a round is four, and two more for its keys.
template <int rounds = 10>
__device__ uint4 philox4x32(uint4 c, uint2 k) {
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c.x;
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c.z;
    c = make_uint4(static_cast<unsigned>(b >> 32) ^ c.y ^ k.x, static_cast<unsigned>(b),
                   static_cast<unsigned>(a >> 32) ^ c.w ^ k.y, static_cast<unsigned>(a));
    k = make_uint2(k.x + 0x9E3779B9u, k.y + 0xBB67AE85u);
  }
  return c;
}

/// A RandomStream as a kernel's parameter. Element i is word i % 4 of block(i / 4). In a capture the
/// number of the stream has a slot (runtime/step_values.h).
struct RandomWords {
  uint2 key, stream;
  const std::uint64_t* slot = nullptr;

  RandomWords() = default;
  explicit RandomWords(const RandomStream& random)
      : key(halves(random.seed())), stream(halves(random.stream())) {
    if (is_capturing()) slot = context().state<StepValues>().slot_of(random);
  }

  template <int rounds = 10>
  __device__ uint4 block(std::uint64_t index) const {
    const uint2 name = slot != nullptr ? halves(*slot) : stream;
    return philox4x32<rounds>(make_uint4(static_cast<unsigned>(index),
                                         static_cast<unsigned>(index >> 32), name.x, name.y),
                              key);
  }

 private:
  __host__ __device__ static uint2 halves(std::uint64_t value) {
    return make_uint2(static_cast<unsigned>(value), static_cast<unsigned>(value >> 32));
  }
};

}  // namespace tessera::gpu
