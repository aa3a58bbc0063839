// The virtual clock of several logs, which are stages of a pipeline, against sums done by hand and the published bubbles.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "sharding/plan/pipeline_schedule.h"
#include "sharding/plan/virtual_clock.h"

namespace tessera {
namespace {

const std::string kCompute = "compute", kSide = "communication";

Work forward(double seconds) {
  return {.kind = Work::Kind::forward, .amount = seconds};
}
Work transfer(double seconds) {
  return {
      .kind = Work::Kind::transfer, .amount = seconds, .rounds = 1, .ranks = 2, .ranks_on_node = 2};
}

/// A machine that does one unit of everything per second.
MachineRates unit_machine(int cores) {
  return {.name = "unit",
          .cores = cores,
          .compute = {{.ranks = 1, .forward = 1.0, .backward = 1.0, .memory = 1.0}},
          .links = {{.ranks = 2, .bandwidth = 1.0}}};
}

const Mesh kPair = {{{"pipeline", 2}}};

/// A log with its collectives.
struct Stage {
  StreamLog log;
  GroupCalls calls;

  /// A transfer with rank `other` of the pipeline, in the group of `name`.
  void meet(const std::string& stream, const std::string& name, double seconds) {
    calls.push_back({.entry = log.size(), .group = name, .first = 0, .last = 1, .name = name});
    log.add_work(stream, transfer(seconds));
  }
  int last() const { return log.size() - 1; }
};

std::vector<Timeline> run_together(const std::vector<Stage>& stages, const Mesh& mesh, int cores) {
  std::vector<RankLog> logs;
  for (const Stage& stage : stages) logs.push_back({.log = &stage.log, .calls = &stage.calls});
  return run_clock(logs, mesh, unit_machine(cores), {.on_node = static_cast<int>(logs.size())});
}

/// The first stage computes 5 s and sends for 2 s. The second computes 1 s, receives, and computes 3 s.
std::vector<Stage> two_stages() {
  std::vector<Stage> stages(2);
  for (Stage& stage : stages) stage.log.start();
  stages[0].log.add_work(kCompute, forward(5.0));
  stages[0].log.add_wait("send", 0);
  stages[0].meet("send", "pair", 2.0);
  stages[1].meet("receive", "pair", 2.0);
  stages[1].log.add_work(kCompute, forward(1.0));
  stages[1].log.add_wait(kCompute, 0);
  stages[1].log.add_work(kCompute, forward(3.0));
  return stages;
}

TEST_CASE("virtual clock: a message begins when both stages have come to it") {
  const auto timelines = run_together(two_stages(), kPair, 0);
  REQUIRE(timelines.size() == 2);
  for (const Timeline& one : timelines) CHECK(one.seconds == Approx(10.0));
  CHECK(timelines[0].entries[2].begin == Approx(5.0));
  CHECK(timelines[1].entries[0].begin == Approx(5.0));
  CHECK(timelines[1].entries[0].end == Approx(7.0));
  // The second waits from 1 s to 5 s for the first, then for the message. The first is done at 5 s.
  CHECK(timelines[1].bubble == Approx(4.0));
  CHECK(timelines[1].exposed == Approx(2.0));
  CHECK(timelines[1].exposed_by_axis == std::map<std::string, double>{{"pipeline", 2.0}});
  CHECK(timelines[0].bubble == Approx(5.0));
  CHECK(timelines[0].exposed == 0.0);
  const std::map<std::string, double> chain = {{"compute", 8.0}, {"link of 2 ranks", 2.0}};
  for (const Timeline& one : timelines) CHECK(one.chain == chain);
}

TEST_CASE("virtual clock: stages that share cores slow each other down only while both compute") {
  // One core: both at half speed until the second's 1 s is done at 2 s. The transfer takes a thread of each.
  const auto timelines = run_together(two_stages(), kPair, 1);
  CHECK(timelines[1].entries[1].end == Approx(2.0));
}

TEST_CASE("virtual clock: stages with unequal calls of a group, and a message that never comes") {
  std::vector<Stage> stages = two_stages();
  stages[1].meet("receive", "pair", 2.0);
  CHECK_THROWS_WITH(run_together(stages, kPair, 0),
                    Catch::Contains("1 and 2 calls of the group pair"));
  stages = two_stages();
  stages[0].log.add_wait(kCompute, 2);
  stages[0].meet(kCompute, "back", 1.0);
  stages[1] = {};
  stages[1].log.start();
  stages[1].meet(kCompute, "back", 1.0);
  stages[1].meet(kCompute, "pair", 2.0);
  CHECK_THROWS_WITH(run_together(stages, kPair, 0), Catch::Contains("waits that never end"));
}

TEST_CASE(
    "virtual clock: transfers of the compute stream are exposed, by the axis of their group") {
  const Mesh mesh = {{{"pipeline", 2}, {"shard", 2}, {"context", 2}, {"expert", 1}, {"tensor", 2}}};
  const auto axis = [&](int first, int last) {
    return axis_of({.entry = 0, .group = "", .first = first, .last = last, .name = ""}, mesh);
  };
  CHECK(axis(6, 7) == "tensor");
  CHECK(axis(1, 3) == "context");
  CHECK(axis(3, 7) == "data");
  CHECK(axis(0, 6) == "data");  // the data ranks of a stage
  CHECK(axis(2, 10) == "pipeline");
  CHECK(axis(0, 15) == "data");
  std::vector<Stage> one(1);
  one[0].log.start();
  const auto exchange = [&](const std::string& stream, int first, int last, double seconds) {
    one[0].calls.push_back(
        {.entry = one[0].log.size(), .group = "g", .first = first, .last = last, .name = ""});
    one[0].log.add_work(stream, transfer(seconds));
  };
  exchange(kSide, 0, 6, 4.0);
  one[0].log.add_work(kCompute, forward(1.0));
  exchange(kCompute, 0, 1, 0.5);
  exchange(kCompute, 0, 2, 0.25);
  one[0].log.add_wait(kCompute, 0);
  const Timeline timeline = run_together(one, mesh, 0)[0];
  CHECK(timeline.seconds == Approx(4.0));
  CHECK(timeline.exposed == Approx(3.0));
  CHECK(timeline.bubble == 0.0);
  CHECK(timeline.exposed_by_axis.at("tensor") == Approx(0.5));
  CHECK(timeline.exposed_by_axis.at("context") == Approx(0.25));
  CHECK(timeline.exposed_by_axis.at("data") == Approx(2.25));
}

/// The logs of a pipeline with messages that take no time. As in the engine the receive of the next pass is queued
/// before a pass computes, and a send follows it.
std::vector<Stage> pipeline_logs(PipelineSchedule schedule, const PipelineShape& shape,
                                 const PipelineCosts& costs) {
  using Kind = PipelinePass::Kind;
  const auto orders = pipeline_order(schedule, shape);
  const int stages = shape.ranks * shape.chunks;
  std::vector<Stage> logs(static_cast<std::size_t>(shape.ranks));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Stage& log = logs[static_cast<std::size_t>(rank)];
    const auto& passes = orders[static_cast<std::size_t>(rank)];
    log.log.start();
    const auto stage = [&](const PipelinePass& pass) { return pass.chunk * shape.ranks + rank; };
    const auto group = [&](const PipelinePass& pass, int from) {
      return fmt::format("{} {}", pass.kind == Kind::forward ? "f" : "b", from % shape.ranks);
    };
    const auto receive = [&](const PipelinePass& pass) {
      const bool forward = pass.kind == Kind::forward;
      if (pass.kind == Kind::weight_gradient) return -1;
      if (forward ? stage(pass) == 0 : stage(pass) + 1 == stages) return -1;
      const std::string stream = forward ? "receive activations" : "receive gradients";
      log.log.add_wait(stream, log.log.last_of(kCompute));
      log.meet(stream, group(pass, forward ? stage(pass) - 1 : stage(pass) + 1), 0.0);
      return log.last();
    };
    int next = receive(passes.front());
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const PipelinePass& pass = passes[i];
      if (next >= 0) log.log.add_wait(kCompute, next);
      if (i + 1 < passes.size()) next = receive(passes[i + 1]);
      const double seconds = pass.kind == Kind::forward          ? costs.forward
                             : pass.kind == Kind::input_gradient ? costs.input_gradient
                             : pass.kind == Kind::weight_gradient
                                 ? costs.weight_gradient
                                 : costs.input_gradient + costs.weight_gradient;
      log.log.add_work(kCompute, forward(seconds / shape.chunks));
      const bool to_next = pass.kind == Kind::forward;
      if (pass.kind == Kind::weight_gradient) continue;
      if (to_next ? stage(pass) + 1 == stages : stage(pass) == 0) continue;
      const std::string stream = to_next ? "send activations" : "send gradients";
      log.log.add_wait(stream, log.last());
      log.meet(stream, group(pass, stage(pass)), 0.0);
    }
  }
  return logs;
}

TEST_CASE("virtual clock: without the time of messages pipelines have the published bubbles") {
  for (const PipelineCosts& costs : {PipelineCosts{}, PipelineCosts{1.0, 1.25, 0.5}}) {
    for (const PipelineSchedule schedule :
         {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward,
          PipelineSchedule::interleaved, PipelineSchedule::zero_bubble}) {
      for (const int ranks : {2, 4}) {
        const bool has_chunks = schedule == PipelineSchedule::interleaved;
        const PipelineShape shape{
            .ranks = ranks, .micro_batches = 2 * ranks, .chunks = has_chunks ? 2 : 1};
        INFO(enum_name(schedule) << ", " << ranks << " ranks");
        const PipelineTimes expected = time_pipeline(pipeline_order(schedule, shape), shape, costs);
        const Mesh mesh = {{{"pipeline", ranks}}};
        const auto timelines = run_together(pipeline_logs(schedule, shape, costs), mesh, 0);
        double bubble = 0.0;
        for (const Timeline& one : timelines) {
          CHECK(one.seconds == Approx(expected.seconds));
          CHECK(one.exposed == 0.0);
          bubble += one.bubble / one.seconds / ranks;
        }
        CHECK(bubble == Approx(expected.bubble));
        // (p - 1) / (m v + p - 1) of Narayanan et al. 2021, where passes take equally long.
        if (schedule == PipelineSchedule::zero_bubble) continue;
        const double filled = shape.micro_batches * shape.chunks;
        CHECK(bubble == Approx((ranks - 1) / (filled + ranks - 1)));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
