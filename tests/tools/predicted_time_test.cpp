// The predicted timeline against a trace: the same events in the same order, and the same bytes.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/transformer_shape.h"
#include "runtime/dry_gpu.h"
#include "runtime/file.h"
#include "runtime/text.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/virtual_clock.h"
#include "tests/support/findings.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/plan/dry_run.h"
#include "tools/plan/figures.h"
#include "tools/plan/machine_file.h"
#include "tools/plan/plan.h"
#include "tools/plan/predicted_trace.h"
#include "tools/plan/search.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

Config tiny(const std::string& preset, std::int64_t micro_batches) {
  Config config;
  config.model = {
      .preset = preset, .layers = 3, .heads = 4, .width = 16, .context = 6, .vocab_size = 29};
  if (preset != "gpt2-mini") {
    config.model.kv_heads = 2;
    config.model.mlp_width = 12;
  }
  if (preset == "qwen3-moe-mini" || preset == "llama4-mini") {
    config.model.experts = 4;
    config.model.expert_width = 8;
  }
  config.data = {.batch_size = 8, .sequence_length = 6, .accumulation_steps = micro_batches};
  return config;
}

/// The names of each track's spans and marks, in their order.
std::map<std::string, std::vector<std::string>> names_by_track(
    const std::vector<Profiler::Record>& records) {
  std::map<std::string, std::vector<std::string>> names;
  for (const Profiler::Record& record : records) names[record.track].push_back(record.name);
  return names;
}

/// The first difference between the events of a prediction and of a trace; empty for equal ones.
std::string difference(const std::vector<Profiler::Record>& predicted,
                       const std::vector<Profiler::Record>& traced) {
  auto a = names_by_track(predicted), b = names_by_track(traced);
  for (auto& [track, names] : b) {
    std::vector<std::string>& others = a[track];
    names.push_back("the end");
    others.push_back("the end");
    for (std::size_t i = 0; i < std::min(names.size(), others.size()); ++i) {
      if (names[i] == others[i]) continue;
      return fmt::format("{}, event {}: predicted {}, traced {}", track, i, others[i], names[i]);
    }
  }
  return b.size() >= 2 ? "" : "the trace has fewer than two tracks";
}

/// Spans and marks of one track that end before an earlier one.
int out_of_order(const std::vector<Profiler::Record>& records) {
  std::map<std::string, double> latest;
  int found = 0;
  for (const Profiler::Record& record : records) {
    const double end = record.begin_us + record.duration_us;
    if (end < latest[record.track] - 1e-6) ++found;
    latest[record.track] = std::max(latest[record.track], end);
  }
  return found;
}

MachineRates slow_links() {
  return {.name = "slow links",
          .cores = 2,
          .compute = {{.ranks = 2, .forward = 1e9, .backward = 1e9, .memory = 1e9}},
          .links = {{.ranks = 2, .latency = 1e-5, .bandwidth = 1e9}}};
}

void check_events(const Config& config, const std::string& name, int ranks) {
  const ResolvedConfig run = resolve(variant_of(config, name));
  test::Findings findings;
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(run, world);
    const BatchSource batches = random_tokens(run.config.data, shape_of(run.model).vocab_size);
    session.step(1, batches);
    communication_stream().synchronize();
    const std::int64_t sent = world.bytes_sent();
    context().profiler().set_tracing(true);
    session.step(2, batches);
    communication_stream().synchronize();
    context().profiler().set_tracing(false);
    const std::vector<Profiler::Record> traced = context().profiler().records();
    const StepMemory dry = dry_run(run, {.rank = world.rank(), .ranks = ranks, .threads = 1});
    const Timeline timeline = run_clock(dry.log, slow_links(), {.on_node = ranks});
    const std::vector<Profiler::Record> predicted = records_of(dry.log, timeline);
    const std::string wrong = difference(predicted, traced);
    findings.expect(wrong.empty(), fmt::format("{}, rank {}: {}", name, world.rank(), wrong));
    findings.expect(out_of_order(predicted) == 0, fmt::format("{}: times go back", name));
    findings.expect(dry.bytes_sent == world.bytes_sent() - sent,
                    fmt::format("{}: other bytes sent", name));
  });
  CHECK(findings.wrong() == std::vector<std::string>());
}

TEST_CASE("prediction: the virtual clock's events are those of a trace, in the same order",
          "[cpu]") {
  for (const std::string& name : strategy_variants()) {
    check_events(tiny("llama3-mini", 2), name, name == "hsdp" ? 4 : 2);
  }
  check_events(tiny("gpt2-mini", 1), "fsdp", 2);
  check_events(tiny("qwen3-moe-mini", 1), "zero3", 2);
  Config overlapped = tiny("gpt2-mini", 1);
  overlapped.runtime.overlap_update = true;
  for (const std::string name : {"ddp", "zero1", "fsdp"}) check_events(overlapped, name, 2);
}

double flops_of(const StreamLog& log, Work::Kind kind) {
  double sum = 0.0;
  for (const StreamLog::Entry& entry : log.entries()) {
    if (entry.work && entry.work->kind == kind) sum += entry.work->amount;
  }
  return sum;
}

TEST_CASE("prediction: the units' operations add up to those of a step") {
  for (const char* preset : {"gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini"}) {
    INFO(preset);
    const ResolvedConfig run = resolve(tiny(preset, 2));
    const DataConfig& data = run.config.data;
    const TransformerShape shape = make_model(run)->shape();
    const StepMemory step = dry_run(run, {.threads = 1});
    const double forward = flops_of(step.log, Work::Kind::forward);
    const double backward = flops_of(step.log, Work::Kind::backward);
    const double head = 6.0 * static_cast<double>(data.batch_size * data.sequence_length) *
                        static_cast<double>(shape.vocab_size * shape.width);
    CHECK(forward + backward ==
          Approx(training_flops(shape, data.batch_size, data.sequence_length)));
    // The head's gradients are computed in forward.
    CHECK(backward == Approx(2.0 * (forward - head)));
    Config again = run.config;
    again.sharding.activation_checkpointing = parse_checkpointing("full").value();
    const StepMemory recomputed = dry_run(resolve(again), {.threads = 1});
    CHECK(flops_of(recomputed.log, Work::Kind::forward) +
              flops_of(recomputed.log, Work::Kind::backward) ==
          Approx(backward + 2.0 * forward - head));
  }
}

TEST_CASE(
    "prediction: in fp8 the blocks' products are in 8 bits, computed again and trained or not") {
  Config config = tiny("llama3-mini", 2);
  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  config.model.frozen = "model.layers.1.";
  config.sharding.activation_checkpointing = parse_checkpointing("full").value();
  double forward = 0.0, backward = 0.0;
  const StepMemory step = dry_run(resolve(config), {.threads = 1});
  for (const StreamLog::Entry& entry : step.log.entries()) {
    if (!entry.work) continue;
    (entry.work->kind == Work::Kind::forward ? forward : backward) += entry.work->in_8_bits;
  }
  // A product of every token with three blocks' weights; again, and with gradients of inputs, and of two blocks' weights.
  constexpr double kBlock = 2 * 16 * 16 + 2 * 8 * 16 + 3 * 12 * 16;
  const double tokens = 8 * 6;
  CHECK(forward == Approx(2.0 * tokens * 3 * kBlock));
  CHECK(backward == Approx(2.0 * tokens * (3 + 3 + 2) * kBlock));
}

TEST_CASE(
    "prediction: in fp8 the experts' forward products are in 8 bits, and their gradients in 16") {
  Config config = tiny("qwen3-moe-mini", 2);
  const auto in_8_bits = [&](Work::Kind kind) {
    double sum = 0.0;
    const StepMemory step = dry_run(resolve(config), {.threads = 1});
    for (const StreamLog::Entry& entry : step.log.entries()) {
      if (entry.work && entry.work->kind == kind) sum += entry.work->in_8_bits;
    }
    return sum;
  };
  config.model.head_size = 4;
  config.model.experts_per_token = 2;
  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  // Attention has q and o of 16 x 16, k and v of 8 x 16. A token has two experts, with three matrices of 8 x 16 each.
  constexpr double kAttention = 2 * 16 * 16 + 2 * 8 * 16, kExperts = 2 * 3 * 8 * 16;
  const double tokens = 8 * 6;
  CHECK(in_8_bits(Work::Kind::forward) == Approx(2.0 * tokens * 3 * (kAttention + kExperts)));
  CHECK(in_8_bits(Work::Kind::backward) == Approx(2.0 * tokens * 3 * 2 * kAttention));
}

TEST_CASE("prediction: frozen weights have no gradient's operations, and adapters have theirs") {
  const auto tokens = [](const Config& config) {
    return static_cast<double>(tokens_per_step(config.data));
  };
  const auto check_sum = [&](const Config& config, double more_per_token) {
    const ResolvedConfig run = resolve(config);
    const auto model = make_model(run);
    const DataConfig& data = config.data;
    const double flops = training_flops(*model, data.batch_size, data.sequence_length);
    const double all = training_flops(model->shape(), data.batch_size, data.sequence_length);
    CHECK(flops == Approx(all + more_per_token * tokens(config)));
    const StepMemory step = dry_run(run, {.threads = 1});
    CHECK(flops_of(step.log, Work::Kind::forward) + flops_of(step.log, Work::Kind::backward) ==
          Approx(flops));
  };
  // A block of width 16 has q and o of 16 x 16, k and v of 8 x 16, and three matrices of 12 x 16.
  constexpr double kBlock = 2 * 16 * 16 + 2 * 8 * 16 + 3 * 12 * 16, kHead = 29 * 16;
  Config config = tiny("llama3-mini", 2);
  config.model.frozen = "model.embed_tokens";  // the head, too: they are one table
  check_sum(config, -2.0 * kHead);
  config.model.frozen = "model.layers.1.";
  check_sum(config, -2.0 * kBlock);
  config.model.frozen = "";
  config.adapter.rank = 2;
  // The factors of a layer are 2 x (inputs + outputs).
  constexpr double kFactors = 2 * (2 * 32 + 2 * 24 + 3 * 28);
  check_sum(config, 3 * (6.0 * kFactors - 2.0 * kBlock) - 2.0 * kHead);
}

/// The bytes of one stream's copies between the device and the host, or of the host's own work.
double host_bytes(const StreamLog& log, const std::string& stream, Work::Kind kind) {
  double sum = 0.0;
  for (const StreamLog::Entry& entry : log.entries()) {
    if (!entry.work || entry.stream != stream) continue;
    if (is_of_host(*entry.work) && entry.work->kind == kind) sum += entry.work->amount;
  }
  return sum;
}

TEST_CASE(
    "prediction: a step with offload copies the bytes of the book's table, and the host updates") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Offload offload : {Offload::none, Offload::optimizer, Offload::all}) {
      for (const int micro_batches : {1, 2}) {
        INFO(name_of(dtype) << ", " << name_of(offload) << ", " << micro_batches);
        Config config = variant_of(tiny("llama3-mini", micro_batches), "fsdp");
        config.runtime.compute_dtype = dtype;
        config.sharding.offload = offload;
        config.sharding.reshard_group = 1;  // each bucket is gathered once a step
        const PlanOptions options{.ranks = 2, .machine = load_machine("h100")};
        const PlanFigures figures = plan_figures(config, options);
        const StepMemory& step = *figures.figures.step;
        const bool copies = offload != Offload::none;
        const auto owned = static_cast<double>(
            footprint_of(figures.plan, figures.figures.prediction.fullest_rank).host.gradients / 4);
        CHECK((owned > 0.0) == copies);
        const double b = dtype == DType::f32 ? 4.0 : 2.0, m = micro_batches;
        const double down = offload == Offload::all ? 4.0 * m : 4.0;
        const double up = b + (offload == Offload::all ? 4.0 * (m - 1) : 0.0);
        const double moved = host_bytes(step.log, "communication", Work::Kind::transfer);
        CHECK(moved == (copies ? (down + up) * owned : 0.0));
        // AdamW reads and writes values and moments, reads gradients, and writes a 16-bit copy. With
        // `all` the norm reads the gradients in the host's memory.
        const double updated =
            2 * 4 + 2 * 8 + 4 + (dtype == DType::f32 ? 0 : 2) + (offload == Offload::all ? 4 : 0);
        CHECK(host_bytes(step.log, "compute", Work::Kind::memory) == updated * owned);
        const auto& chain = figures.figures.time->timeline.chain;
        CHECK(chain.contains("host memory") == copies);
      }
    }
  }
}

TEST_CASE("prediction: without rates of the host a plan with offload has no time, and says so") {
  const test::TemporaryDirectory directory;
  Config config = variant_of(tiny("llama3-mini", 1), "fsdp");
  config.sharding.offload = Offload::optimizer;
  const PlanOptions options{.ranks = 2, .machine = slow_links()};
  CHECK(!plan_figures(config, options).figures.time);
  CHECK_THAT(plan(config, options), !Catch::Contains("The time of a step"));
  CHECK_THROWS_WITH(
      write_predicted_trace(config, options, (directory.path() / "trace.json").string()),
      Catch::Contains("no rates of the host's memory"));
}

TEST_CASE("prediction: a sweep with a machine has each page's times") {
  const Config config = variant_of(tiny("llama3-mini", 2), "fsdp");
  PlanOptions options{.machine = slow_links()};
  options.machine->compute[0] = {.forward = 1e6, .backward = 1e6, .memory = 1e6};
  const std::string sweep = plan_sweep(config, {2, 4}, options);
  const std::size_t section = sweep.find("The time of a step on slow links, by strategy, in ms:");
  REQUIRE(section != sweep.npos);
  for (const int ranks : {2, 4}) {
    options.ranks = ranks;
    std::string row = fmt::format("  {:>8}", ranks);
    for (const PlannedStrategy& one : every_strategy(plan_figures(config, options))) {
      row += one.time ? fmt::format(" {:>9.2f}", 1e3 * one.time->timeline.seconds)
                      : fmt::format(" {:>9}", "-");
    }
    CHECK_THAT(sweep.substr(section), Catch::Contains(row + "\n"));
  }
  CHECK_THAT(plan_sweep(config, {2, 4}, {}), !Catch::Contains("The time of a step"));
}

TEST_CASE("prediction: a plan with a machine prints the time of every strategy") {
  const Config config = variant_of(tiny("llama3-mini", 2), "fsdp");
  PlanOptions options{.ranks = 4};
  const std::string without = plan(config, options);
  CHECK(without.find("The time of a step") == std::string::npos);
  options.machine = load_machine("h100");
  const std::string page = plan(config, options);
  REQUIRE(page.starts_with(without));
  const std::string section = page.substr(without.size());
  CHECK_THAT(section, Catch::Contains("data sheet: NVIDIA H100"));
  for (const std::string_view line : split(section, '\n')) CHECK(line.size() < 80);
  const auto json = nlohmann::json::parse(plan_json(config, {4}, options));
  for (const auto& strategy : json["plans"][0]["strategies"]) {
    INFO(strategy["strategy"]);
    const auto& time = strategy["time"];
    const double step = time["step_seconds"];
    CHECK_THAT(section, Catch::Contains(fmt::format("{:>11.2f} {:>11.2f}", 1e3 * step,
                                                    1e3 * time["exposed_seconds"].get<double>())));
    double sum = 0.0;
    for (const auto& part : time["chain_seconds"]) sum += part.get<double>();
    CHECK(sum == Approx(step));
    CHECK(time["tokens_per_second"].get<double>() == Approx(8 * 6 / step));
  }
  CHECK(nlohmann::json::parse(plan_json(config, {4}, {}))["plans"][0]["time"].is_null());
}

TEST_CASE("machine files: written and read again, and refused by name") {
  const test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "machine.json").string();
  MachineRates machine = machine_to_fit(path, 2);
  CHECK(machine.source == "measured");
  const ComputeRates rates = {.ranks = 2,
                              .threads = 3,
                              .dtype = DType::bf16,
                              .forward = 5e9,
                              .backward = 4e9,
                              .memory = 3e9};
  replace_rates(machine, {.ranks = 2, .threads = 3, .dtype = DType::bf16});
  replace_rates(machine, rates);
  replace_link(machine, {.ranks = 4, .latency = 2e-6, .bandwidth = 7e9});
  machine.network = Link{.ranks = 2, .latency = 0.0, .bandwidth = 1e9};
  machine.host = HostRates{.link = {.latency = 3e-6, .bandwidth = 2e9}, .memory = 5e9};
  write_machine(path, machine);
  const MachineRates again = machine_to_fit(path, 64);
  CHECK(again.cores == 2);
  REQUIRE(again.compute.size() == 1);
  CHECK(again.compute[0].forward == 5e9);
  CHECK(again.compute[0].backward == 4e9);
  CHECK(again.compute[0].memory == 3e9);
  CHECK(again.compute_of(2, DType::bf16).threads == 3);
  CHECK(again.link_of(4).latency == Approx(2e-6));
  CHECK(again.link_of(4).bandwidth == 7e9);
  CHECK(again.network->bandwidth == 1e9);
  CHECK(again.host->link.latency == Approx(3e-6));
  CHECK(again.host->link.bandwidth == 2e9);
  CHECK(again.host->memory == 5e9);
  CHECK_THROWS_WITH(load_machine("h101"), Catch::Contains("a100, h100, h200"));
  const ComputeRates sustained = load_machine("h200-sustained").compute.front();
  CHECK(sustained.dtype == DType::bf16);
  CHECK(sustained.forward == Approx(636e12));
  CHECK(load_machine("h200-sustained").compute_in_8_bits(8, DType::bf16).forward ==
        Approx(1272e12));
  CHECK(load_machine("a100").compute_in_8_bits(8, DType::bf16).backward == 312e12);
  CHECK(again.compute_in_8_bits(2, DType::bf16).forward == 5e9);
  write_file_atomically(path, R"({"name": "x", "source": "y", "cores": 2, "rings": false,
      "compute": [], "links": [{"ranks": 2, "latency_us": 1, "bytes_per_second": 0}]})");
  CHECK_THROWS_WITH(load_machine(path),
                    path + ": links[0]: bytes_per_second is 0; expected a positive number");
}

TEST_CASE("prediction: a predicted trace has the form of a traced one, and the predicted times") {
  const test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "trace.json").string();
  const Config config = variant_of(tiny("llama3-mini", 1), "fsdp");
  PlanOptions options{.ranks = 2};
  CHECK_THROWS_WITH(write_predicted_trace(config, options, path), Catch::Contains("--machine"));
  options.machine = slow_links();
  write_predicted_trace(config, options, path);
  const auto trace = nlohmann::json::parse(read_text_file(path));
  const StepTime time = *plan_figures(config, options).figures.time;
  double end = 0.0, exposed = 0.0;
  int marks = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "i") ++marks;
    if (event["ph"] != "X") continue;
    const double duration = event["dur"];
    end = std::max(end, event["ts"].get<double>() + duration);
    if (event["name"] == "exposed communication") exposed += duration;
  }
  CHECK(marks > 10);
  CHECK(end == Approx(1e6 * time.timeline.seconds));
  CHECK(exposed > 0.0);
  CHECK(exposed <= 1e6 * time.timeline.exposed * (1.0 + 1e-9));
}

TEST_CASE("search: every strategy and mesh that fits, the fastest first") {
  const Config config = tiny("llama3-mini", 1);
  PlanOptions options{.ranks = 4};
  CHECK_THROWS_WITH(search_strategies(config, options, {}), Catch::Contains("--machine"));
  options.machine = slow_links();
  const std::vector<Candidate> all = search_strategies(config, options, {});
  const auto without_cuts =
      std::count_if(all.begin(), all.end(), [](const Candidate& one) { return one.keys.empty(); });
  // With 4 ranks hsdp has one mesh.
  CHECK(without_cuts == static_cast<std::ptrdiff_t>(strategy_variants().size()));
  std::int64_t least = all[0].peak;
  for (const Candidate& one : all) {
    CHECK(all[0].step_seconds <= one.step_seconds);
    least = std::min(least, one.peak);
    if (!one.keys.empty()) continue;
    Config again = variant_of(config, one.strategy);
    if (one.shard_size > 0) again.sharding.shard_size = one.shard_size;
    CHECK(plan_figures(again, options).figures.time->timeline.seconds == one.step_seconds);
  }
  for (const Candidate& one : search_strategies(config, options, least)) CHECK(one.peak == least);
  CHECK_THROWS_WITH(search_strategies(config, options, 1), Catch::Contains("fits the memory"));
}

}  // namespace
}  // namespace tessera
