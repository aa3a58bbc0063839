#include "runtime/random.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numbers>
#include <set>
#include <vector>

#include "runtime/error.h"

namespace tessera {
namespace {

constexpr int kSamples = 200000;

/// Mean of f(0), ..., f(kSamples - 1).
template <typename F>
double mean_of(F&& f) {
  double sum = 0.0;
  for (int i = 0; i < kSamples; ++i) sum += f(static_cast<std::uint64_t>(i));
  return sum / kSamples;
}

/// Six standard deviations of the mean of kSamples independent values of this variance. A mean is
/// farther from its expectation once in 500 million.
double six_sigma(double variance) {
  return 6.0 * std::sqrt(variance / kSamples);
}

void require_bijection(std::uint64_t size, std::uint64_t seed) {
  const RandomPermutation permutation(RandomStream(seed, "order"), size);
  std::vector<int> hits(size, 0);
  for (std::uint64_t i = 0; i < size; ++i) {
    const std::uint64_t value = permutation(i);
    REQUIRE(value < size);
    ++hits[value];
  }
  REQUIRE(std::all_of(hits.begin(), hits.end(), [](int count) { return count == 1; }));
}

}  // namespace

// Random123 1.14.0, tests/kat_vectors, "philox4x32 10".
TEST_CASE("Philox4x32-10 gives Random123's known answers") {
  REQUIRE(philox4x32({0, 0, 0, 0}, {0, 0}) ==
          PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  REQUIRE(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
          PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// The same file, "philox4x32 7".
TEST_CASE("Philox4x32-7 gives Random123's known answers") {
  REQUIRE(philox4x32<7>({0, 0, 0, 0}, {0, 0}) ==
          PhiloxCounter{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  REQUIRE(
      philox4x32<7>({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
      PhiloxCounter{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  REQUIRE(
      philox4x32<7>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
      PhiloxCounter{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

TEST_CASE("a stream addresses Philox as documented") {
  const RandomStream random(0x299f31d0a4093822, 0x0370734413198a2e);
  REQUIRE(random.block(0x85a308d3243f6a88) ==
          PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  REQUIRE(random.block<7>(0x85a308d3243f6a88) ==
          PhiloxCounter{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
  for (std::uint64_t i = 0; i < 20; ++i) REQUIRE(random.bits(i) == random.block(i / 4)[i % 4]);
}

TEST_CASE("uniform values fill the bins from 0 to 1 evenly and neighbours are uncorrelated") {
  REQUIRE(RandomStream::to_uniform(0) == 0.0f);
  REQUIRE(RandomStream::to_uniform(0xffffffff) == 1.0f - 0x1p-24f);
  const RandomStream random(4, "bins");
  std::vector<int> bins(100, 0);
  for (int i = 0; i < kSamples; ++i) ++bins[static_cast<int>(random.uniform(i) * 100)];
  double chi_squared = 0.0;
  for (const int count : bins) {
    const double expected = kSamples / 100.0;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  // 99 degrees of freedom: mean 99, standard deviation sqrt(2 * 99).
  REQUIRE(std::abs(chi_squared - 99.0) < 6.0 * std::sqrt(198.0));
  for (const std::uint64_t lag : {1, 2, 3, 4, 64}) {
    const double covariance = mean_of([&](std::uint64_t i) {
      return (random.uniform(i) - 0.5) * (random.uniform(i + lag) - 0.5);
    });
    REQUIRE(std::abs(covariance) < six_sigma(1.0 / 144.0));
  }
}

TEST_CASE("normal values are the nearest floats of Box and Muller's formula") {
  const RandomStream random(9, "formula");
  for (std::uint64_t i = 0; i < 20000; i += 2) {
    const auto radius = std::sqrt(-2.0L * std::log(1.0L - random.uniform(i)));
    const auto angle = 2.0L * std::numbers::pi_v<long double> * random.uniform(i + 1);
    REQUIRE(random.normal(i) == static_cast<float>(radius * std::cos(angle)));
    REQUIRE(random.normal(i + 1) == static_cast<float>(radius * std::sin(angle)));
  }
}

TEST_CASE("normal values have the same bits alone and in a row, wherever it begins and ends") {
  const RandomStream random(9, "row");
  for (std::uint64_t first = 0; first < 9; ++first) {
    std::vector<float> row((first % 2 == 0 ? 13 : 600) - first);
    fill_normal(row, random, first);
    for (std::uint64_t i = 0; i < row.size(); ++i) REQUIRE(row[i] == random.normal(first + i));
  }
}

TEST_CASE("normal values are finite for every word, the extreme ones included") {
  // The largest radius: u = 1 - 2^-24, so sqrt(-2 log 2^-24) = 5.77.
  const double largest = std::sqrt(48.0 * std::log(2.0));
  const RandomStream random(6, "extremes");
  for (int i = 0; i < kSamples; ++i) REQUIRE(std::abs(random.normal(i)) <= largest);
}

TEST_CASE("below() is uniform over its range and refuses an empty one") {
  const RandomStream random(7, "below");
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70000; ++i) ++counts[random.below(i, 7)];
  // Binomial: n p (1 - p) = 70000 * 1/7 * 6/7.
  for (const int count : counts) REQUIRE(std::abs(count - 10000) < 6.0 * std::sqrt(60000.0 / 7.0));
  REQUIRE(random.below(3, 1) == 0);
  REQUIRE(random.below(3, UINT64_MAX) < UINT64_MAX);
  REQUIRE(mean_of([&](std::uint64_t i) {
            return static_cast<double>(random.below(i, std::uint64_t{1} << 63)) * 0x1p-63;
          }) == Approx(0.5).margin(six_sigma(1.0 / 12.0)));
  REQUIRE_THROWS_AS(random.below(0, 0), Error);
}

TEST_CASE("another seed, name or number is another stream") {
  const RandomStream streams[] = {
      RandomStream(1, "wte"),
      RandomStream(2, "wte"),
      RandomStream(1, "wpe"),
      RandomStream(1, "wte", 1),
      RandomStream(1, "wte", 0, 1),
      RandomStream(1, "wte", 1, 1),
      RandomStream(1, "wte", 256),
      RandomStream(1, ""),
      RandomStream(1 + (1ull << 32), "wte"),
      RandomStream(1, "wte", 1, 2),
      RandomStream(1, "wte", 2, 1),
  };
  std::set<PhiloxCounter> blocks;
  for (const RandomStream& stream : streams) {
    for (std::uint64_t i = 0; i < 10; ++i) blocks.insert(stream.block(i));
  }
  REQUIRE(blocks.size() == std::size(streams) * 10);
  REQUIRE(RandomStream(1, "wte").block(0) != RandomStream(1, "wte").block(std::uint64_t{1} << 32));
}

TEST_CASE("streams of neighbouring seeds and numbers are uncorrelated") {
  const RandomStream base(1, "dropout", 10, 0);
  for (const RandomStream& other :
       {RandomStream(2, "dropout", 10, 0), RandomStream(1, "dropout", 11, 0),
        RandomStream(1, "dropout", 10, 1), RandomStream(1, "dropouu", 10, 0)}) {
    const double covariance = mean_of(
        [&](std::uint64_t i) { return (base.uniform(i) - 0.5) * (other.uniform(i) - 0.5); });
    REQUIRE(std::abs(covariance) < six_sigma(1.0 / 144.0));
  }
}

TEST_CASE("a permutation is a bijection, for every size") {
  for (std::uint64_t size = 1; size <= 300; ++size) require_bijection(size, size % 3);
  for (const std::uint64_t size : {1023, 1024, 1025, 4096, 4097, 10007, 65537}) {
    require_bijection(size, 9);
  }
}

TEST_CASE("a permutation takes the largest size") {
  const RandomPermutation permutation(RandomStream(1, "huge"), UINT64_MAX);
  std::set<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 1000; ++i) values.insert(permutation(i));
  REQUIRE(values.size() == 1000);
}

TEST_CASE("a permutation shuffles: few fixed points, other seeds, other orders") {
  constexpr std::uint64_t kSize = 5000;
  const RandomPermutation a(RandomStream(1, "epoch"), kSize);
  const RandomPermutation b(RandomStream(2, "epoch"), kSize);
  int fixed = 0, equal = 0, rising = 0;
  for (std::uint64_t i = 0; i < kSize; ++i) {
    fixed += a(i) == i;
    equal += a(i) == b(i);
    if (i + 1 < kSize) rising += a(i) < a(i + 1);
  }
  // Both counts are close to Poisson with mean 1: P(> 10) is 1e-8.
  REQUIRE(fixed <= 10);
  REQUIRE(equal <= 10);
  // Ascents of a random permutation: mean (n - 1) / 2, variance (n + 1) / 12.
  REQUIRE(std::abs(rising - (kSize - 1) / 2.0) < 6.0 * std::sqrt((kSize + 1) / 12.0));
}

TEST_CASE("a permutation refuses size 0 and indices outside") {
  REQUIRE_THROWS_AS(RandomPermutation(RandomStream(1, "x"), 0), Error);
  REQUIRE_THROWS_WITH(RandomPermutation(RandomStream(1, "x"), 5)(5), Catch::Contains("5"));
}

}  // namespace tessera
