// The predicted time of steps with tensor, context and pipeline ranks.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "models/transformer_shape.h"
#include "runtime/file.h"
#include "sharding/plan/pipeline_schedule.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/six_layers.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/advice.h"
#include "tools/plan/dry_run.h"
#include "tools/plan/figures.h"
#include "tools/plan/plan.h"
#include "tools/plan/predicted_trace.h"

namespace tessera {
namespace {

/// The operations of a log, and those in 8 bits.
Work operations_of(const StreamLog& log, std::initializer_list<Work::Kind> kinds) {
  Work sum;
  for (const StreamLog::Entry& entry : log.entries()) {
    if (!entry.work || std::ranges::find(kinds, entry.work->kind) == kinds.end()) continue;
    sum.amount += entry.work->amount;
    sum.in_8_bits += entry.work->in_8_bits;
  }
  return sum;
}

TEST_CASE("prediction: the operations of all ranks add up to those of a step under every cut") {
  struct Case {
    int tensor, context, pipeline;
    PipelineSchedule schedule;
    RowExchange exchange = RowExchange::together;
  };
  for (const Case& one :
       {Case{4, 1, 1, PipelineSchedule::gpipe}, Case{1, 2, 1, PipelineSchedule::gpipe},
        Case{1, 1, 4, PipelineSchedule::one_forward_one_backward},
        Case{2, 1, 2, PipelineSchedule::zero_bubble}, Case{2, 2, 2, PipelineSchedule::gpipe},
        Case{4, 1, 1, PipelineSchedule::gpipe, RowExchange::by_rank},
        Case{2, 1, 2, PipelineSchedule::zero_bubble, RowExchange::by_rank}}) {
    Config config = test::six_layers();
    config.sharding.tensor_parallel = one.tensor;
    config.sharding.tensor_exchange = one.exchange;
    config.sharding.context_parallel = one.context;
    config.sharding.pipeline_parallel = one.pipeline;
    config.sharding.pipeline_schedule = one.schedule;
    if (one.schedule == PipelineSchedule::zero_bubble) {
      config.sharding.reduce = ReduceAfter::last_micro_batch;
    }
    // Six blocks have q, k, v and o of 32 x 32, and three matrices of 64 x 32. The sums that tensor ranks divide, one
    // for each weight, are products in 16 bits.
    // Forward these are the sums of o and the last matrix.
    constexpr double kBlocks = 6 * (4 * 32 * 32 + 3 * 64 * 32), kDivided = 6 * (32 * 32 + 64 * 32);
    for (const ComputeDtype dtype : {ComputeDtype(), ComputeDtype::eight_bits()}) {
      config.runtime.compute_dtype = dtype;
      const ResolvedConfig run = resolve(config);
      const int ranks = one.tensor * one.context * one.pipeline;
      double sum = 0.0, in_8_bits = 0.0, forward = 0.0;
      for (int rank = 0; rank < ranks; ++rank) {
        const StepMemory step = dry_run(run, {.rank = rank, .ranks = ranks, .threads = 1});
        const Work work = operations_of(step.log, {Work::Kind::forward, Work::Kind::backward});
        sum += work.amount;
        in_8_bits += work.in_8_bits;
        forward += operations_of(step.log, {Work::Kind::forward}).in_8_bits;
      }
      INFO(one.tensor << " x " << one.context << " x " << one.pipeline << name_of(dtype));
      CHECK(sum == Approx(training_flops(make_model(run)->shape(), config.data.batch_size,
                                         config.data.sequence_length)));
      const auto tokens = static_cast<double>(tokens_per_step(config.data));
      const double each = one.tensor > 1 ? 4.0 : 6.0;
      CHECK(in_8_bits == Approx(dtype.fp8 ? each * tokens * kBlocks : 0.0));
      const double of_forward = one.tensor > 1 ? kBlocks - kDivided : kBlocks;
      CHECK(forward == Approx(dtype.fp8 ? 2.0 * tokens * of_forward : 0.0));
    }
  }
}

TEST_CASE("prediction: stages of equal work and fast messages have the schedule's bubble") {
  Config config = test::six_layers();
  config.model.vocab_size = 2;  // the head costs next to nothing
  config.sharding.pipeline_parallel = 2;
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward,
        PipelineSchedule::interleaved}) {
    config.sharding.pipeline_schedule = schedule;
    const bool has_chunks = schedule == PipelineSchedule::interleaved;
    config.sharding.pipeline_chunks = has_chunks ? 3 : 1;
    config.sharding.pipeline_stages =
        has_chunks ? "layers.1,layers.2,layers.3,layers.4,layers.5" : "layers.3";
    const PlanFigures figures =
        plan_figures(config, {.ranks = 2, .machine = test::gpus_with_links(1e15)});
    const PipelinePlan& pipeline = figures.plan.pipeline;
    const PipelineTimes expected =
        time_pipeline(pipeline_order(schedule, pipeline.shape), pipeline.shape,
                      {.forward = 1.0, .input_gradient = 1.0, .weight_gradient = 1.0});
    const Timeline& timeline = figures.figures.time->timeline;
    INFO(enum_name(schedule));
    CHECK(timeline.bubble / timeline.seconds == Approx(expected.bubble).margin(0.01));
    CHECK(figures.figures.time->stages.size() == 2);
  }
}

TEST_CASE("prediction: a slower link exposes more of the axis that uses it") {
  for (const char* const axis : {"tensor", "context", "pipeline"}) {
    Config config = test::six_layers();
    const std::string cut = axis;
    if (cut == "tensor") config.sharding.tensor_parallel = 2;
    if (cut == "context") config.sharding.context_parallel = 2;
    if (cut == "pipeline") config.sharding.pipeline_parallel = 2;
    const auto exposed = [&](double bandwidth) {
      const PlanFigures figures =
          plan_figures(config, {.ranks = 2, .machine = test::gpus_with_links(bandwidth)});
      return figures.figures.time->timeline.exposed_by_axis.at(axis);
    };
    INFO(axis);
    CHECK(exposed(1e5) > 0.0);
    // Computation hides a part of a pipeline's messages, and nothing of the others.
    const double factor = exposed(1e5) / exposed(2e5);
    if (cut == "pipeline") {
      CHECK(factor > 1.5);
    } else {
      CHECK(factor == Approx(2.0));
    }
  }
}

// A message of one of 4 ranks' rows takes less time than the product of as many rows. Only the messages around the
// embedding, the head and the norms stay exposed, and what a rank's first rows and last sums do not hide.
TEST_CASE("prediction: rows that travel by rank are hidden behind products") {
  Config config = test::six_layers();
  config.sharding.tensor_parallel = 4;
  const auto predicted = [&](RowExchange exchange, double bandwidth) {
    config.sharding.tensor_exchange = exchange;
    return plan_figures(config, {.ranks = 4, .machine = test::gpus_with_links(bandwidth)})
        .figures.time->timeline;
  };
  for (const double bandwidth : {1e7, 1e6}) {
    const Timeline together = predicted(RowExchange::together, bandwidth);
    const Timeline by_rank = predicted(RowExchange::by_rank, bandwidth);
    const double before = together.exposed_by_axis.at("tensor");
    const double behind = by_rank.exposed_by_axis.at("tensor");
    CAPTURE(bandwidth, before, behind);
    CHECK(behind < 0.4 * before);
    CHECK(together.seconds - by_rank.seconds == Approx(before - behind).epsilon(0.05));
  }
}

TEST_CASE("prediction: a pipeline across nodes sends through the network") {
  Config config = test::six_layers();
  config.sharding.pipeline_parallel = 2;
  config.sharding.tensor_parallel = 2;
  const auto limits = [&](int nodes) {
    const PlanOptions options{.ranks = 4, .nodes = nodes, .machine = test::gpus_with_links(1e4)};
    return plan_figures(config, options).figures.time->timeline.chain;
  };
  CHECK(!limits(1).contains("network, 2 ranks"));
  CHECK(limits(2).contains("network, 2 ranks"));
}

TEST_CASE("prediction: a page, JSON and a trace name the axes and the bubble") {
  Config config = test::six_layers();
  config.sharding.pipeline_parallel = 2;
  config.sharding.tensor_parallel = 2;
  const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(1e6)};
  const PlanFigures figures = plan_figures(config, options);
  const Timeline& timeline = figures.figures.time->timeline;
  const std::string page = plan(config, options);
  CHECK_THAT(page, Catch::Contains(fmt::format("tensor {:.2f} ms",
                                               1e3 * timeline.exposed_by_axis.at("tensor"))));
  CHECK_THAT(page, Catch::Contains(fmt::format("bubble: {:.1f}% of the step",
                                               100.0 * timeline.bubble / timeline.seconds)));
  const auto time = nlohmann::json::parse(plan_json(config, {4}, options))["plans"][0]["time"];
  CHECK(time["bubble_seconds"].get<double>() == timeline.bubble);
  double sum = 0.0;
  for (const auto& seconds : time["exposed_seconds_by_axis"]) sum += seconds.get<double>();
  CHECK(sum == Approx(time["exposed_seconds"].get<double>()));

  const test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "trace.json").string();
  write_predicted_trace(config, options, path);
  const auto trace = nlohmann::json::parse(read_text_file(path));
  std::set<int> ranks;
  std::set<std::string> tracks;
  for (const auto& event : trace["traceEvents"]) {
    ranks.insert(event["pid"].get<int>());
    if (event["name"] == "thread_name") tracks.insert(event["args"]["name"]);
  }
  CHECK(ranks == std::set{0, 2});  // a rank for each stage
  for (const char* const axis : {"axis tensor", "axis pipeline", "axis data"}) {
    INFO(axis);
    CHECK(tracks.contains(axis));
  }
}

TEST_CASE("advice: if nothing else fits, the fewest ranks of a cut that do") {
  Config config = test::six_layers();
  config.data.batch_size = 2;
  config.data.accumulation_steps = 1;
  config.data.sequence_length = 512;
  config.sharding.strategy = StrategyKind::fsdp;
  config.sharding.activation_checkpointing = {.first = 0, .every = 1};
  const PlanOptions options{.ranks = 2, .on_gpus = false};
  std::int64_t least = plan_figures(config, options).figures.peak();
  for (const PlannedStrategy& other : every_strategy(plan_figures(config, options))) {
    if (other.peak() > 0) least = std::min(least, other.peak());
  }
  const MemoryAdvice advice = memory_advice(config, options, least - 1);
  REQUIRE(!advice.fits.empty());
  CHECK(advice.fits.front().peak < least);
  std::set<std::string> keys;
  for (const Fit& fit : advice.fits) keys.insert(fit.keys.front());
  CHECK(keys.contains("sharding.tensor_parallel=2"));
}

}  // namespace
}  // namespace tessera
