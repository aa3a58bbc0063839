#include "tools/generate/sampler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <vector>

namespace tessera {
namespace {

// Softmax probabilities 0.5, 0.25, 0.125, 0.125 at temperature 1.
const std::vector<float> kLogits = {std::log(0.25f), std::log(0.5f), std::log(0.125f),
                                    std::log(0.125f)};
constexpr int kDraws = 20000;

std::map<std::int64_t, double> frequencies(const SamplingOptions& options) {
  const RandomStream random(1, "test");
  std::map<std::int64_t, double> counts;
  for (int i = 0; i < kDraws; ++i) {
    counts[sample(kLogits, options, random, static_cast<std::uint64_t>(i))] += 1.0 / kDraws;
  }
  return counts;
}

}  // namespace

TEST_CASE("sampling follows the softmax") {
  auto f = frequencies({});
  // Five standard deviations of a frequency near one half: 5 * sqrt(0.25 / 20000) = 0.018.
  CHECK(f[1] == Approx(0.5).margin(0.018));
  CHECK(f[0] == Approx(0.25).margin(0.018));
  CHECK(f[2] == Approx(0.125).margin(0.018));
  CHECK(f[3] == Approx(0.125).margin(0.018));
}

TEST_CASE("temperature sharpens and flattens, and zero is greedy") {
  CHECK(frequencies({.temperature = 0.0}) ==
        std::map<std::int64_t, double>{{1, frequencies({.temperature = 0.0})[1]}});
  // At temperature 1/2 the probabilities are squared: 0.25, 0.0625, 2 * 0.015625, normalized.
  CHECK(frequencies({.temperature = 0.5})[1] == Approx(0.25 / 0.34375).margin(0.018));
}

TEST_CASE("top-k keeps the k likeliest, top-p the fewest that hold the mass") {
  CHECK(frequencies({.top_k = 1}).size() == 1);
  auto two = frequencies({.top_k = 2});
  CHECK(two.size() == 2);
  CHECK(two[1] == Approx(2.0 / 3.0).margin(0.018));
  CHECK(frequencies({.top_p = 0.4}).size() == 1);
  CHECK(frequencies({.top_p = 0.7}).size() == 2);
  // Among equal logits the lower id comes first.
  CHECK(frequencies({.top_p = 0.8}).count(3) == 0);
  CHECK(frequencies({.top_p = 0.8}).count(2) == 1);
  CHECK(frequencies({.top_k = 100}).size() == 4);
}

TEST_CASE("sampling options out of range are named") {
  const RandomStream random(1, "test");
  REQUIRE_THROWS_WITH(sample(kLogits, {.temperature = -1.0}, random, 0),
                      Catch::Contains("temperature"));
  REQUIRE_THROWS_WITH(sample(kLogits, {.top_k = -1}, random, 0), Catch::Contains("top-k"));
  REQUIRE_THROWS_WITH(sample(kLogits, {.top_p = 0.0}, random, 0), Catch::Contains("top-p"));
  REQUIRE_THROWS_WITH(sample(kLogits, {.top_p = 1.5}, random, 0), Catch::Contains("top-p"));
}

}  // namespace tessera
