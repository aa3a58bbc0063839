// Random numbers that are addressed, not drawn: value = f(seed, stream, element index).
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). Any rank and any thread can compute any element, in any order. So a rank creates just
// its shard of a parameter, and backward computes dropout's mask again instead of saving it. There
// is no state to keep or restore.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// 128 random bits as a function of counter and key. Ten rounds are the authors' advice. Seven are the
/// fewest whose bits pass all tests of BigCrush in their paper.
template <int rounds = 10>
PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

/// One named sequence of random numbers, random access. The key is the seed; the counter's upper
/// half is the stream's 64-bit name and its lower half the block index. Element i takes word i % 4
/// of block i / 4.
class RandomStream {
 public:
  RandomStream() = default;
  RandomStream(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  /// The stream's number is the hash of the name and two numbers, such as (step, micro-batch).
  RandomStream(std::uint64_t seed, std::string_view name, std::uint64_t first = 0,
               std::uint64_t second = 0);

  /// Four words: elements 4 * index to 4 * index + 3.
  template <int rounds = 10>
  PhiloxCounter block(std::uint64_t index) const {
    return philox4x32<rounds>(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
         static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
        {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  }
  std::uint32_t bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }
  /// Uniform in [0, 1), 24 bits.
  float uniform(std::uint64_t index) const { return to_uniform(bits(index)); }
  /// Uniform in {0, ..., bound - 1}; the bias is below bound / 2^64. Raises Error if bound is 0.
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;
  /// Standard normal by Box-Muller: elements 2j and 2j + 1 share two words.
  float normal(std::uint64_t index) const;

  static float to_uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

  std::uint64_t seed() const { return seed_; }
  std::uint64_t stream() const { return stream_; }

 private:
  std::uint64_t seed_ = 0;
  std::uint64_t stream_ = 0;
};

/// values[i] = random.normal(first + i), to the bit, many at a time.
void fill_normal(std::span<float> values, const RandomStream& random, std::uint64_t first);

/// A pseudo-random bijection of {0, ..., size - 1} with random access: a shuffled epoch needs no
/// table. A Feistel network permutes the next power of four, and cycle walking applies it again
/// until the value is below `size`.
class RandomPermutation {
 public:
  /// Raises Error if size is 0.
  RandomPermutation(const RandomStream& stream, std::uint64_t size);
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  RandomStream stream_;
  std::uint64_t size_;
  int half_bits_;
};

}  // namespace tessera
