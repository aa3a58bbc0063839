#include "kernels/gradient_norm/clip.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace tessera {

TEST_CASE("clip_scale: brings the norm down to the maximum, and only down") {
  REQUIRE(clip_scale(4.0, 1.0) == 0.25);
  REQUIRE(clip_scale(1.0, 1.0) == 1.0);
  REQUIRE(clip_scale(0.5, 1.0) == 1.0);
  REQUIRE(clip_scale(0.0, 1.0) == 1.0);
}

TEST_CASE("clip_scale: a maximum of 0 or less does not clip, a norm that is not finite gives NaN") {
  const double infinity = std::numeric_limits<double>::infinity();
  REQUIRE(clip_scale(100.0, 0.0) == 1.0);
  REQUIRE(clip_scale(infinity, -1.0) == 1.0);
  REQUIRE(std::isnan(clip_scale(infinity, 1.0)));
  REQUIRE(std::isnan(clip_scale(std::nan(""), 1.0)));
}

}  // namespace tessera
