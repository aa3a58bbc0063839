// Random words of neighbouring elements, with the blocks in the lanes of vectors.
#pragma once

#include <cstdint>

#include "runtime/random.h"

namespace tessera::cpu {

/// Words of a Philox block: the elements that it serves.
inline constexpr std::int64_t kBlockWords = 4;
/// Blocks and words that are computed together.
inline constexpr std::int64_t kBlocksAtOnce = 64, kWordsAtOnce = kBlocksAtOnce * kBlockWords;

/// Words 4 i to 4 i + 3 are random.block<rounds>(first_block + i), for i < kBlocksAtOnce. The rounds are
/// those of philox4x32 (runtime/random.h), each over all blocks: the compiler vectorizes this loop, and
/// not one over calls of that function.
template <int rounds = 10>
void fill_words(std::uint32_t* __restrict__ words, const RandomStream& random,
                std::uint64_t first_block) {
  std::uint32_t counter[kBlockWords][kBlocksAtOnce];
  for (std::int64_t i = 0; i < kBlocksAtOnce; ++i) {
    const std::uint64_t block = first_block + static_cast<std::uint64_t>(i);
    counter[0][i] = static_cast<std::uint32_t>(block);
    counter[1][i] = static_cast<std::uint32_t>(block >> 32);
    counter[2][i] = static_cast<std::uint32_t>(random.stream());
    counter[3][i] = static_cast<std::uint32_t>(random.stream() >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(random.seed());
  auto key1 = static_cast<std::uint32_t>(random.seed() >> 32);
  for (int round = 0; round < rounds; ++round) {
#pragma omp simd
    for (std::int64_t i = 0; i < kBlocksAtOnce; ++i) {
      const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0][i];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2][i];
      counter[0][i] = static_cast<std::uint32_t>(b >> 32) ^ counter[1][i] ^ key0;
      counter[1][i] = static_cast<std::uint32_t>(b);
      counter[2][i] = static_cast<std::uint32_t>(a >> 32) ^ counter[3][i] ^ key1;
      counter[3][i] = static_cast<std::uint32_t>(a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (std::int64_t i = 0; i < kBlocksAtOnce; ++i) {
    for (std::int64_t w = 0; w < kBlockWords; ++w) words[kBlockWords * i + w] = counter[w][i];
  }
}

}  // namespace tessera::cpu
