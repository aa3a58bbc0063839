// The emulated cuBLASLt's sums of 8-bit products with Hopper's 14 bits.
#include "runtime/emulation/device/narrow_sum.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace tessera::emulation {
namespace {

/// The sum of these terms, by place, and zeros.
float sum_of(const std::map<std::size_t, float>& terms, std::size_t depth) {
  constexpr std::int64_t kStride = 2;
  std::vector<float> a(depth, 0.0f), b(kStride * depth, 0.5f);
  for (const auto& [k, term] : terms) a[k] = 2.0f * term;
  return narrow_sum(a.data(), b.data(), kStride, static_cast<std::int64_t>(depth));
}

}  // namespace

TEST_CASE("narrow sums keep 14 bits below the largest term") {
  CHECK(sum_of({{0, 1.0f}, {5, 0x1p-13f}}, 32) == 1.0f + 0x1p-13f);
  CHECK(sum_of({{0, 1.0f}, {5, 0x1p-14f}}, 32) == 1.0f);
  CHECK(sum_of({{31, 1.0f}, {5, 0x1.8p-13f}}, 32) == 1.0f + 0x1p-13f);
  CHECK(sum_of({{0, 1.0f}, {5, -0x1p-14f}}, 32) == 1.0f);  // towards zero
  CHECK(sum_of({{0, 3.0f}, {5, 0x1p-13f}}, 32) == 3.0f);
  CHECK(sum_of({{0, 0x1p-20f}, {5, 0x1p-33f}}, 32) == 0x1p-20f + 0x1p-33f);
}

TEST_CASE("narrow sums cut the sum of earlier products, and add every 128 of them in f32") {
  CHECK(sum_of({{0, 1.0f}, {32, 0x1p-14f}}, 64) == 1.0f);
  CHECK(sum_of({{0, 0x1p-14f}, {32, 1.0f}}, 64) == 1.0f);
  CHECK(sum_of({{0, 1.0f}, {127, 0x1p-14f}}, 160) == 1.0f);
  CHECK(sum_of({{0, 1.0f}, {128, 0x1p-14f}}, 160) == 1.0f + 0x1p-14f);
}

TEST_CASE("narrow sums of nothing, infinity and NaN") {
  CHECK(sum_of({}, 0) == 0.0f);
  CHECK(sum_of({}, 33) == 0.0f);
  CHECK(sum_of({{40, INFINITY}, {1, 1.0f}}, 64) == INFINITY);
  CHECK(std::isnan(sum_of({{40, std::numeric_limits<float>::quiet_NaN()}}, 64)));
}

}  // namespace tessera::emulation
