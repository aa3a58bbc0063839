#include "runtime/integer.h"

#include <catch2/catch.hpp>

namespace tessera {

TEST_CASE("ceil_div is the least quotient that covers the dividend") {
  for (std::int64_t b = 1; b <= 9; ++b) {
    for (std::int64_t a = 0; a <= 40; ++a) {
      const std::int64_t q = ceil_div(a, b);
      INFO(a << " / " << b << " gives " << q);
      REQUIRE(q * b >= a);
      REQUIRE((q - 1) * b < a);
    }
  }
}

TEST_CASE("ceil_div does not overflow at the end of 64 bits") {
  REQUIRE(ceil_div(INT64_MAX, 1) == INT64_MAX);
  REQUIRE(ceil_div(INT64_MAX, 2) == std::int64_t{1} << 62);
  REQUIRE(ceil_div(INT64_MAX, INT64_MAX) == 1);
}

TEST_CASE("round_up gives the next multiple, and a multiple itself") {
  REQUIRE(round_up(0, 8) == 0);
  REQUIRE(round_up(1, 8) == 8);
  REQUIRE(round_up(8, 8) == 8);
  REQUIRE(round_up(9, 8) == 16);
  REQUIRE(round_up(50257, 128) == 50304);  // GPT-2's vocabulary, padded
  static_assert(round_up(13, 1) == 13);
}

}  // namespace tessera
