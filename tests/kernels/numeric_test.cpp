#include "kernels/cpu/numeric.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace tessera::cpu {

TEST_CASE("exponential is within 0.9 units in the last place of e^x") {
  double worst = 0.0;
  const auto compare = [&](float x) {
    const double expected = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(expected) - 23, -149));
    worst = std::max(worst, std::fabs(exponential(x) - expected) / unit);
  };
  for (int i = 0; i <= 2'000'000; ++i) compare(-86.9f + 175.6f * static_cast<float>(i) / 2e6f);
  for (int e = -126; e <= 0; ++e) {
    compare(std::ldexp(1.0f, e));
    compare(-std::ldexp(1.0f, e));
  }
  REQUIRE(worst < 0.9);
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
