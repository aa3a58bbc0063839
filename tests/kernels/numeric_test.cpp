#include "kernels/cpu/numeric.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/sigmoid.h"
#include "tests/support/rank.h"

namespace tessera::cpu {
namespace {

/// The error in units in the last place that a float has at `expected`. A result may be 0 below
/// 1.7e-38 and infinity above the largest float.
double error_of(float value, double expected) {
  if (std::isnan(expected)) return std::isnan(value) ? 0.0 : HUGE_VAL;
  if (value == 0.0f && expected < 1.7e-38) return 0.0;
  if (std::isinf(value) && expected > std::numeric_limits<float>::max()) return 0.0;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(expected) - 23, -149));
  const double error = std::fabs(value - expected) / unit;
  return std::isnan(error) ? HUGE_VAL : error;
}

/// The largest error of f over all 2^32 floats. The loops of all levels must have the same bits.
template <typename F, typename Expected>
double worst_of_all_floats(const F& f, const Expected& expected) {
  const test::Rank rank;
  constexpr std::int64_t kBlock = 1 << 20, kChunks = kBlock / kElementwiseChunk;
  std::vector<float> x(kBlock), y(kBlock), first_level(kBlock);
  std::vector<double> worst(kChunks, 0.0);
  for (std::uint32_t block = 0; block < 1 << 12; ++block) {
    for (std::uint32_t i = 0; i < kBlock; ++i) x[i] = std::bit_cast<float>(block << 20 | i);
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
      if (!has_isa(isa)) continue;
      matmul_options().isa = isa;
      elementwise(kBlock, y.data(), f, x.data());
      if (isa == Isa::portable) first_level = y;
      CAPTURE(enum_name(isa), block);
      REQUIRE(std::memcmp(y.data(), first_level.data(), kBlock * sizeof(float)) == 0);
    }
    tessera::parallel_for(kBlock, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
      double& largest = worst[static_cast<std::size_t>(begin / kElementwiseChunk)];
      for (std::int64_t i = begin; i < end; ++i) {
        largest = std::max(largest, error_of(y[i], expected(static_cast<double>(x[i]))));
      }
    });
  }
  return *std::max_element(worst.begin(), worst.end());
}

}  // namespace

TEST_CASE("exponential is within 0.9 units in the last place of e^x") {
  double worst = 0.0;
  const auto compare = [&](float x) {
    worst = std::max(worst, error_of(exponential(x), std::exp(static_cast<double>(x))));
  };
  for (int i = 0; i <= 2'000'000; ++i) compare(-86.9f + 175.6f * static_cast<float>(i) / 2e6f);
  for (int e = -126; e <= 0; ++e) {
    compare(std::ldexp(1.0f, e));
    compare(-std::ldexp(1.0f, e));
  }
  REQUIRE(worst < 0.9);
}

// Minutes: test_kernels_numeric "[.minutes]"
TEST_CASE("exponential of every float is within 0.895 units in the last place of e^x",
          "[.minutes]") {
  const double worst = worst_of_all_floats([](float x) { return exponential(x); },
                                           [](double x) { return std::exp(x); });
  WARN("exponential: " << worst);
  CHECK(worst < 0.895);
}

TEST_CASE("sigmoid of every float is within 2.5 units in the last place of 1 / (1 + e^-x)",
          "[.minutes]") {
  const double worst = worst_of_all_floats([](float x) { return sigmoid(x); },
                                           [](double x) { return 1.0 / (1.0 + std::exp(-x)); });
  WARN("sigmoid: " << worst);
  CHECK(worst < 2.5);
}

TEST_CASE("exponential is 0, infinity or NaN at the extremes") {
  const float infinity = std::numeric_limits<float>::infinity();
  REQUIRE(exponential(0.0f) == 1.0f);
  REQUIRE(exponential(-0.0f) == 1.0f);
  REQUIRE(exponential(infinity) == infinity);
  REQUIRE(exponential(88.8f) == infinity);
  REQUIRE(exponential(3e38f) == infinity);
  REQUIRE(exponential(-infinity) == 0.0f);
  REQUIRE(exponential(-3e38f) == 0.0f);
  REQUIRE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
  for (float x = -87.0f; x > -110.0f; x -= 0.1f) REQUIRE(exponential(x) == 0.0f);
}

TEST_CASE("exponential never decreases between neighbouring arguments a thousandth apart") {
  float before = 0.0f;
  for (int i = -90'000; i <= 88'000; ++i) {
    const float value = exponential(static_cast<float>(i) / 1000.0f);
    REQUIRE(value >= before);
    before = value;
  }
}

TEST_CASE("exponential of a double has a double's digits") {
  REQUIRE(exponential(1.0) == 0x1.5bf0a8b145769p1);  // e, rounded
}

TEST_CASE("values are computed in float, f64 in double, and narrowed to nearest") {
  REQUIRE(std::is_same_v<compute_t<bfloat16>, float>);
  REQUIRE(std::is_same_v<compute_t<double>, double>);
  bfloat16 half;
  store(half, 1.0f + 0x1p-8f);  // a tie between 1 and 1 + 2^-7
  REQUIRE(load(half) == 1.0f);
  float wide = 0.0f;
  store_as(wide, 0.1);
  REQUIRE(wide == 0.1f);
}

}  // namespace tessera::cpu
