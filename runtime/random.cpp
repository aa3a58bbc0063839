#include "runtime/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "runtime/check.h"
#include "runtime/elementary.h"
#include "runtime/hash.h"

namespace tessera {
namespace {

// Box-Muller: two words give the point whose coordinates are two normal numbers. Its radius is
// sqrt(-2 ln(1 - u)) and its angle 2 pi v.
double angle_of(std::uint32_t word) {
  return 2.0 * std::numbers::pi * RandomStream::to_uniform(word);
}

double radius_of(double logarithm) {
  return std::sqrt(-2.0 * logarithm);
}

/// In (0, 1]: its logarithm is finite.
double positive_uniform(std::uint32_t word) {
  return 1.0 - RandomStream::to_uniform(word);
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, std::string_view name, std::uint64_t first,
                           std::uint64_t second)
    : seed_(seed) {
  Fnv1a hash;
  hash.add(name);
  hash.add(first);
  hash.add(second);
  stream_ = hash.value();
}

std::uint64_t RandomStream::below(std::uint64_t index, std::uint64_t bound) const {
  check(bound >= 1, "a random number below 0 is asked for; the bound must be at least 1");
  const PhiloxCounter words = block(index);  // one block per element; two words are used
  const std::uint64_t wide = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(wide) * bound) >> 64);
}

float RandomStream::normal(std::uint64_t index) const {
  const PhiloxCounter words = block(index / 4);
  const std::size_t pair = (index % 4) / 2 * 2;
  const double radius = radius_of(logarithm(positive_uniform(words[pair])));
  const double angle = angle_of(words[pair + 1]);
  return static_cast<float>(radius * (index % 2 == 0 ? cosine(angle) : sine(angle)));
}

void fill_normal(std::span<float> values, const RandomStream& random, std::uint64_t first) {
  constexpr std::size_t kPairs = 128;
  std::array<double, kPairs> logs{}, angles{}, sines{}, cosines{};
  std::size_t i = 0;
  for (; i < values.size() && (first + i) % 4 != 0; ++i) values[i] = random.normal(first + i);
  while (i + 4 <= values.size()) {
    const std::size_t pairs = std::min(kPairs, (values.size() - i) / 4 * 2);
    for (std::size_t pair = 0; pair < pairs; pair += 2) {
      const PhiloxCounter words = random.block((first + i) / 4 + pair / 2);
      for (const std::size_t half : {0, 1}) {
        logs[pair + half] = positive_uniform(words[2 * half]);
        angles[pair + half] = angle_of(words[2 * half + 1]);
      }
    }
    logarithms(std::span(logs).first(pairs));
    sines_and_cosines(std::span(angles).first(pairs), sines.data(), cosines.data());
    for (std::size_t pair = 0; pair < pairs; ++pair, i += 2) {
      const double radius = radius_of(logs[pair]);
      values[i] = static_cast<float>(radius * cosines[pair]);
      values[i + 1] = static_cast<float>(radius * sines[pair]);
    }
  }
  for (; i < values.size(); ++i) values[i] = random.normal(first + i);
}

RandomPermutation::RandomPermutation(const RandomStream& stream, std::uint64_t size)
    : stream_(stream), size_(size), half_bits_(1) {
  check(size >= 1, "a permutation has 0 elements; expected at least 1");
  while (half_bits_ < 32 && (std::uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

// Six rounds of a balanced Feistel network. The round function is Philox.
std::uint64_t RandomPermutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < 6; ++round) {
    const std::uint64_t mixed = stream_.block((round << 32) | right)[0] & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return (left << half_bits_) | right;
}

std::uint64_t RandomPermutation::operator()(std::uint64_t index) const {
  check(index < size_, "index {} is outside a permutation of {}", index, size_);
  std::uint64_t value = index;
  do {
    value = encrypt(value);
  } while (value >= size_);
  return value;
}

}  // namespace tessera
