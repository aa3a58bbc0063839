#include "optim/loss_scaler.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

using Catch::Contains;

void repeat(LossScaler& scaler, std::int64_t times, bool finite) {
  for (std::int64_t i = 0; i < times; ++i) scaler.update(finite);
}

}  // namespace

TEST_CASE("the scale starts at 65536 and doubles after 2000 good steps in a row") {
  LossScaler scaler;
  REQUIRE(scaler.scale() == 65536.0);
  repeat(scaler, 1999, true);
  REQUIRE(scaler.scale() == 65536.0);
  scaler.update(true);
  REQUIRE(scaler.scale() == 131072.0);
  repeat(scaler, 1999, true);
  REQUIRE(scaler.scale() == 131072.0);
  scaler.update(true);
  REQUIRE(scaler.scale() == 262144.0);
}

TEST_CASE("an overflow halves the scale and restarts the count") {
  LossScaler scaler;
  repeat(scaler, 1999, true);
  scaler.update(false);
  REQUIRE(scaler.scale() == 32768.0);
  repeat(scaler, 1999, true);
  REQUIRE(scaler.scale() == 32768.0);
  scaler.update(true);
  REQUIRE(scaler.scale() == 65536.0);
  repeat(scaler, 3, false);
  REQUIRE(scaler.scale() == 8192.0);
}

TEST_CASE("the scale stays between 1 and 2^24") {
  LossScaler scaler;
  repeat(scaler, 16, false);
  REQUIRE(scaler.scale() == 1.0);
  scaler.update(false);
  REQUIRE(scaler.scale() == 1.0);
  repeat(scaler, 24 * 2000, true);
  REQUIRE(scaler.scale() == 16777216.0);
  repeat(scaler, 2000, true);
  REQUIRE(scaler.scale() == 16777216.0);
}

TEST_CASE("a scaler made from another's state continues like it") {
  LossScaler first;
  repeat(first, 3, false);
  repeat(first, 1500, true);
  LossScaler second(first.state());
  REQUIRE(second.scale() == 8192.0);
  repeat(second, 499, true);
  REQUIRE(second.scale() == 8192.0);
  second.update(true);
  REQUIRE(second.scale() == 16384.0);
}

TEST_CASE("an impossible state is refused") {
  using State = LossScaler::State;
  for (const double scale : {0.0, -2.0, 0.5, 3.0, 65537.0, 33554432.0}) {
    CAPTURE(scale);
    REQUIRE_THROWS_WITH(LossScaler(State{.scale = scale}), Contains("power of two"));
  }
  for (const std::int64_t steps : {-1, 2000}) {
    REQUIRE_THROWS_WITH(LossScaler(State{.good_steps = steps}), Contains("good_steps is"));
  }
  REQUIRE(LossScaler(State{.scale = 1.0, .good_steps = 1999}).scale() == 1.0);
  REQUIRE(LossScaler(State{.scale = 16777216.0}).scale() == 16777216.0);
}

}  // namespace tessera
