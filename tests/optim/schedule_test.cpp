#include "optim/schedule.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/support/error_of.h"

namespace tessera {
namespace {

using Catch::Contains;

const std::vector<ScheduleKind> kKinds = {ScheduleKind::constant, ScheduleKind::linear,
                                          ScheduleKind::cosine, ScheduleKind::warmup_stable_decay};

ScheduleOptions options_of(ScheduleKind kind) {
  return {.kind = kind,
          .learning_rate = 0.8,
          .minimum_ratio = 0.25,
          .warmup_steps = 10,
          .total_steps = 111,
          .decay_steps = 20};
}

}  // namespace

TEST_CASE("schedule: warm-up rises linearly from lr / warmup to the peak, for every kind") {
  for (const ScheduleKind kind : kKinds) {
    for (int step = 0; step < 10; ++step) {
      REQUIRE(learning_rate_at(options_of(kind), step) == Approx(0.08 * (step + 1)));
    }
    REQUIRE(learning_rate_at(options_of(kind), 10) == Approx(0.8));
  }
}

TEST_CASE("schedule: without warm-up the first step has the peak") {
  for (const ScheduleKind kind : kKinds) {
    ScheduleOptions options = options_of(kind);
    options.warmup_steps = 0;
    REQUIRE(learning_rate_at(options, 0) == 0.8);
  }
}

TEST_CASE("schedule: the floor is reached exactly at the last step, not before, and kept") {
  for (const ScheduleKind kind :
       {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::warmup_stable_decay}) {
    INFO(name_of(kind));
    // With any share of warm-up. Dividing by total instead of total - warm-up misses the floor.
    for (const std::int64_t warmup : {0, 1, 10, 55, 91}) {
      ScheduleOptions options = options_of(kind);
      options.warmup_steps = warmup;
      REQUIRE(learning_rate_at(options, 110) == Approx(0.2).epsilon(1e-14));
      REQUIRE(learning_rate_at(options, 109) > 0.2 * (1.0 + 1e-6));
      REQUIRE(learning_rate_at(options, 500) == Approx(0.2).epsilon(1e-14));
      options.minimum_ratio = 0.0;
      REQUIRE(std::fabs(learning_rate_at(options, 110)) < 1e-15);
    }
  }
}

TEST_CASE("schedule: constant stays at the peak for ever") {
  ScheduleOptions options = options_of(ScheduleKind::constant);
  options.total_steps = 0;
  REQUIRE(learning_rate_at(options, 11) == 0.8);
  REQUIRE(learning_rate_at(options, 1'000'000'000'000) == 0.8);
}

TEST_CASE("schedule: linear and cosine pass their closed forms between warm-up and the end") {
  for (int step = 10; step <= 110; ++step) {
    const double progress = (step - 10) / 100.0;
    REQUIRE(learning_rate_at(options_of(ScheduleKind::linear), step) ==
            Approx(0.8 - 0.6 * progress));
    REQUIRE(learning_rate_at(options_of(ScheduleKind::cosine), step) ==
            Approx(0.2 + 0.3 * (1.0 + std::cos(std::numbers::pi * progress))));
  }
  REQUIRE(learning_rate_at(options_of(ScheduleKind::cosine), 60) == Approx(0.5));
}

TEST_CASE("schedule: warmup_stable_decay holds the peak, then falls over the last decay_steps") {
  const ScheduleOptions options = options_of(ScheduleKind::warmup_stable_decay);
  for (int step = 10; step <= 90; ++step) REQUIRE(learning_rate_at(options, step) == 0.8);
  for (int i = 1; i <= 20; ++i) {
    REQUIRE(learning_rate_at(options, 90 + i) == Approx(0.8 - 0.6 * i / 20.0));
  }
}

TEST_CASE("schedule: the decay of warmup_stable_decay is a line, a cosine or one minus a root") {
  ScheduleOptions options = options_of(ScheduleKind::warmup_stable_decay);
  for (int i = 0; i <= 20; ++i) {
    const double s = i / 20.0;
    options.decay_shape = DecayShape::cosine;
    REQUIRE(learning_rate_at(options, 90 + i) ==
            Approx(0.2 + 0.3 * (1.0 + std::cos(std::numbers::pi * s))));
    options.decay_shape = DecayShape::sqrt;
    REQUIRE(learning_rate_at(options, 90 + i) == Approx(0.2 + 0.6 * (1.0 - std::sqrt(s))));
  }
}

TEST_CASE("schedule: a table's stages begin at their steps, counted from 1, after the warm-up") {
  ScheduleOptions options = options_of(ScheduleKind::table);
  options.total_steps = 0;
  options.table = {{15, 0.5}, {20, 0.0}, {30, 2.0}};
  REQUIRE(learning_rate_at(options, 4) == Approx(0.4));
  REQUIRE(learning_rate_at(options, 13) == 0.8);
  REQUIRE(learning_rate_at(options, 14) == 0.4);
  REQUIRE(learning_rate_at(options, 18) == 0.4);
  REQUIRE(learning_rate_at(options, 19) == 0.0);
  REQUIRE(learning_rate_at(options, 29) == 1.6);
  REQUIRE(learning_rate_at(options, 1'000'000'000'000) == 1.6);
}

TEST_CASE("schedule: a table that is empty or does not rise is refused") {
  const auto message_of = [](std::vector<ScheduleStage> table) {
    ScheduleOptions options = options_of(ScheduleKind::table);
    options.table = std::move(table);
    return test::error_of([&] { learning_rate_at(options, 0); });
  };
  REQUIRE_THAT(message_of({}), Contains("table has 0 stages"));
  REQUIRE_THAT(message_of({{0, 1.0}}), Contains("table has step 0 after 0"));
  REQUIRE_THAT(message_of({{5, 1.0}, {5, 0.5}}), Contains("table has step 5 after 5"));
  REQUIRE_THAT(message_of({{5, -1.0}}), Contains("factor -1"));
}

TEST_CASE("schedule: short runs: one step, warm-up only, one step of decay") {
  ScheduleOptions options = {.kind = ScheduleKind::cosine,
                             .learning_rate = 1.0,
                             .minimum_ratio = 0.5,
                             .warmup_steps = 0,
                             .total_steps = 1};
  REQUIRE(learning_rate_at(options, 0) == 0.5);  // the last step
  options.warmup_steps = options.total_steps = 4;
  REQUIRE(learning_rate_at(options, 3) == 1.0);
  options.total_steps = 5;
  REQUIRE(learning_rate_at(options, 4) == 0.5);
}

TEST_CASE("schedule: wrong options are named") {
  const auto message_of = [](auto change) {
    ScheduleOptions options = options_of(ScheduleKind::warmup_stable_decay);
    change(options);
    return test::error_of([&] { learning_rate_at(options, 0); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(message_of([](auto&) {}) == "no error");
  REQUIRE_THAT(message_of([](auto& o) { o.learning_rate = -1.0; }),
               Contains("learning_rate is -1"));
  REQUIRE_THAT(message_of([&](auto& o) { o.learning_rate = nan; }), Contains("learning_rate"));
  REQUIRE_THAT(message_of([](auto& o) { o.minimum_ratio = 1.5; }),
               Contains("minimum_ratio is 1.5"));
  REQUIRE_THAT(message_of([](auto& o) { o.warmup_steps = -1; }), Contains("warmup_steps is -1"));
  REQUIRE_THAT(message_of([](auto& o) { o.warmup_steps = 112; }), Contains("warmup_steps is 112"));
  REQUIRE_THAT(message_of([](auto& o) { o.total_steps = 0; }), Contains("total_steps is 0"));
  REQUIRE_THAT(message_of([](auto& o) { o.decay_steps = 102; }), Contains("decay_steps is 102"));
  REQUIRE_THROWS_WITH(learning_rate_at(options_of(ScheduleKind::linear), -1),
                      Contains("step is -1"));
}

}  // namespace tessera
