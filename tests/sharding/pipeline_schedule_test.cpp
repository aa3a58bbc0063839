// Schedules of pipelines, against the bubbles of the papers.
#include "sharding/plan/pipeline_schedule.h"

#include <catch2/catch.hpp>
#include <map>

#include "runtime/error.h"

namespace tessera {
namespace {

using Kind = PipelinePass::Kind;
using enum PipelineSchedule;

constexpr PipelineCosts kCosts = {.forward = 1.0, .input_gradient = 1.25, .weight_gradient = 0.75};
constexpr double kPass = kCosts.forward + kCosts.input_gradient + kCosts.weight_gradient;

PipelineTimes times_of(PipelineSchedule schedule, const PipelineShape& shape) {
  return time_pipeline(pipeline_order(schedule, shape), shape, kCosts);
}

TEST_CASE("pipeline: every rank runs every pass once, weights behind inputs") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const PipelineSchedule schedule :
         {gpipe, one_forward_one_backward, interleaved, zero_bubble}) {
      for (const int chunks : {1, 2, 3}) {
        if (chunks > 1 && schedule != interleaved) continue;
        const PipelineShape shape = {.ranks = ranks, .micro_batches = 3 * ranks, .chunks = chunks};
        INFO(enum_name(schedule) << " on " << ranks << " ranks, " << chunks << " chunks");
        const bool split = schedule == zero_bubble;
        for (const auto& passes : pipeline_order(schedule, shape)) {
          std::map<std::pair<int, int>, std::vector<Kind>> by_micro_batch;
          for (const PipelinePass& one : passes)
            by_micro_batch[{one.micro_batch, one.chunk}].push_back(one.kind);
          CHECK(by_micro_batch.size() == static_cast<std::size_t>(shape.micro_batches * chunks));
          for (const auto& [key, kinds] : by_micro_batch) {
            CHECK(kinds ==
                  (split ? std::vector{Kind::forward, Kind::input_gradient, Kind::weight_gradient}
                         : std::vector{Kind::forward, Kind::backward}));
          }
        }
        CHECK(times_of(schedule, shape).seconds >= shape.micro_batches * kPass * (1 - 1e-12));
      }
    }
  }
}

TEST_CASE("pipeline: the bubbles of the published formulas") {
  for (const int p : {2, 3, 4, 8}) {
    for (const int K : {p, 2 * p, 5 * p}) {
      INFO(p << " ranks, " << K << " micro-batches");
      const PipelineShape shape = {.ranks = p, .micro_batches = K};
      for (const PipelineSchedule schedule : {gpipe, one_forward_one_backward}) {
        const PipelineTimes times = times_of(schedule, shape);
        CHECK(times.seconds == Approx((K + p - 1) * kPass));
        CHECK(times.bubble == Approx((p - 1.0) / (K + p - 1)));  // Huang et al. 2019
      }
      for (const int v : {2, 4}) {  // Narayanan et al. 2021, 2.2
        const PipelineTimes times =
            times_of(interleaved, {.ranks = p, .micro_batches = K, .chunks = v});
        CHECK(times.seconds == Approx(K * kPass + (p - 1) * kPass / v));
      }
      // Qi et al. 2024, table 2: (p - 1) (T_F + T_B - T_W), with T_B for the input.
      CHECK(times_of(zero_bubble, shape).seconds ==
            Approx(K * kPass +
                   (p - 1) * (kCosts.forward + kCosts.input_gradient - kCosts.weight_gradient)));
    }
  }
}

TEST_CASE("pipeline: how many micro-batches a rank keeps") {
  const PipelineShape shape = {.ranks = 4, .micro_batches = 12};
  const auto kept = [&](PipelineSchedule schedule) {
    std::vector<int> most;
    for (const auto& passes : pipeline_order(schedule, shape)) most.push_back(most_kept(passes));
    return most;
  };
  CHECK(kept(gpipe) == std::vector{12, 12, 12, 12});
  CHECK(kept(one_forward_one_backward) == std::vector{4, 3, 2, 1});
  CHECK(kept(zero_bubble) == std::vector{4, 4, 4, 4});
}

TEST_CASE("pipeline: shapes that a schedule does not have") {
  CHECK_THROWS_WITH(
      pipeline_order(interleaved, {.ranks = 4, .micro_batches = 6, .chunks = 2}),
      Catch::Contains("needs a multiple of 4 micro-batches") && Catch::Contains("there are 6"));
  CHECK_THROWS_WITH(
      pipeline_order(gpipe, {.ranks = 4, .micro_batches = 8, .chunks = 2}),
      Catch::Contains("schedule gpipe has one chunk") && Catch::Contains("choose interleaved"));
  CHECK_THROWS_AS(pipeline_order(gpipe, {.ranks = 0}), Error);
}

}  // namespace
}  // namespace tessera
