// bench_strategies: the needs of each sharding strategy, and the proof that all compute the same.
//
// Every strategy trains the same model from the same start on the same random tokens. Memory and
// traffic are measured on every rank and must equal the prediction to the byte. Loss, gradient norm
// and weights must have the first strategy's bits. (One exception: where sums over ranks have another
// order, as for hsdp on 2 x 3 ranks, they must agree to 1e-6.) NCCL sums in the order of the other
// communicators (sharding.deterministic). Times are medians over the steps. Every strategy runs in
// turns with the first one, step by step, and is compared with its neighbour in time: a machine that
// is slow for a while slows both.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/error.h"
#include "sharding/comm/launcher.h"
#include "sharding/comm/world.h"
#include "tools/bench/command_line.h"
#include "tools/bench/compare.h"
#include "tools/bench/report.h"
#include "tools/bench/workload.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/program/command_line.h"
#include "tools/train/resolve.h"

namespace tessera {
namespace {

struct Options {
  WorkloadOptions workload = {.model = "tiny"};
  int ranks = 0;
  int threads = 0;
  int steps = 5;
  int rounds = 1;
  std::vector<std::string> strategies = strategy_variants();
  std::string json;
};

/// The number of ranks: --ranks, or runtime.ranks, or 0 for the launcher's. Without any of them
/// two, because strategies do not differ on one rank.
int ranks_of(const Options& options, const Config& config) {
  if (options.ranks > 0) return options.ranks;
  if (config.runtime.ranks > 0) return static_cast<int>(config.runtime.ranks);
  return find_launch().kind == Launch::Kind::none ? 2 : 0;
}

WorldOptions world_of(const Options& options, const Config& config) {
  return {
      .ranks = ranks_of(options, config),
      .device = first_device(config.runtime),
      .threads = options.threads > 0 ? options.threads : static_cast<int>(config.runtime.threads),
      .communicator = config.sharding.communicator,
      .deterministic = true};
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / 0x1p20);
}

void print_bytes_and_times(const std::vector<StrategyFigures>& all) {
  constexpr const char* kRow =
      "{:<10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>8} {:>9}  {}\n";
  const auto line = [&](const auto&... cells) { fmt::print(fmt::runtime(kRow), cells...); };
  const std::string& first = all.front().strategy;
  line("", "parameters", "gradients", "optimizer", "slots", "total", "activations", "sent/step",
       "step", "exposed", "tokens/s", "vs " + first);
  line("", "MiB", "MiB", "MiB", "MiB", "MiB", "MiB", "MiB", "ms", "ms", "", "median [least, most]");
  for (const StrategyFigures& row : all) {
    const Footprint& bytes = row.measured;
    line(row.strategy, mebibytes(bytes.parameters), mebibytes(bytes.gradients),
         mebibytes(bytes.optimizer), mebibytes(bytes.communication), mebibytes(row.total),
         mebibytes(row.activations), mebibytes(bytes.bytes_sent),
         fmt::format("{:.2f}", row.step_ms), fmt::format("{:.2f}", row.exposed_communication_ms),
         fmt::format("{:.0f}", row.tokens_per_second),
         fmt::format("{:.3f} [{:.3f}, {:.3f}]", row.step_ratio, row.least_step_ratio,
                     row.most_step_ratio));
  }
  fmt::print(
      "\nBytes are those of the rank with the most, measured on every rank and as predicted to the "
      "byte.\n"
      "slots hold gathered parameters and gradients on their way; total is the sum of the four "
      "columns before it, on one rank.\n"
      "exposed is the time per step that computation waits for communication.\n"
      "vs {} divides the time of each step by that of the {} step right before it.\n",
      first, first);
}

void print_results(const std::vector<StrategyFigures>& all) {
  fmt::print("{:<10} {:>14} {:>22} {:>18}\n", "", "loss", "gradient norm", "weights");
  for (const StrategyFigures& row : all) {
    const char* comparison = same_bits(row, all.front()) ? "same bits"
                             : agree(row, all.front()) ? "sums in another order: equal to rounding"
                                                       : "OTHER BITS";
    fmt::print("{:<10} {:>14.9g} {:>22.17g} {:>18}  {}\n", row.strategy, row.loss,
               row.gradient_norm, fmt::format("{:016x}", row.weights_checksum), comparison);
  }
}

/// "All agree ...", or the strategies that do not.
std::string verdict(const std::vector<StrategyFigures>& all) {
  std::string others;
  std::string rounded;
  for (const StrategyFigures& row : all) {
    if (!agree(row, all.front())) others += fmt::format(" {}", row.strategy);
    if (!same_bits(row, all.front())) rounded += fmt::format(", {} to rounding", row.strategy);
  }
  if (!others.empty()) {
    return fmt::format("They do NOT agree: other results than {}:{}.", all.front().strategy,
                       others);
  }
  return fmt::format("All agree: one loss, one gradient norm, the same weights{}.", rounded);
}

nlohmann::ordered_json predicted_and_measured(const StrategyFigures& row,
                                              std::int64_t Footprint::*part) {
  return {{"predicted", row.predicted.*part}, {"measured", row.measured.*part}};
}

nlohmann::ordered_json row_of(const StrategyFigures& row, const StrategyFigures& first) {
  return {
      {"strategy", row.strategy},
      {"loss", std::stod(fmt::format("{:.9g}", row.loss))},  // a float's digits
      {"gradient_norm", row.gradient_norm},
      {"weights_checksum", fmt::format("{:016x}", row.weights_checksum)},
      {"same_bits", same_bits(row, first)},
      {"bytes_sent", predicted_and_measured(row, &Footprint::bytes_sent)},
      {"memory",
       {{"parameters", predicted_and_measured(row, &Footprint::parameters)},
        {"gradients", predicted_and_measured(row, &Footprint::gradients)},
        {"optimizer", predicted_and_measured(row, &Footprint::optimizer)},
        {"slots", predicted_and_measured(row, &Footprint::communication)}}},
      {"total_bytes", row.total},
      {"activations_bytes", row.activations},
      {"step_ms", row.step_ms},
      {"tokens_per_second", row.tokens_per_second},
      {"communication_ms", row.communication_ms},
      {"exposed_communication_ms", row.exposed_communication_ms},
      {"step_ratio", row.step_ratio},
      {"least_step_ratio", row.least_step_ratio},
      {"most_step_ratio", row.most_step_ratio},
  };
}

nlohmann::ordered_json report_of(const Options& options, const Config& config,
                                 const std::vector<StrategyFigures>& all) {
  nlohmann::ordered_json report = new_report("bench_strategies");
  report["model"] = options.workload.model;
  report["steps"] = options.steps;
  report["rounds"] = options.rounds;
  report["config"] = config_entries(config);
  report["strategies"] = nlohmann::ordered_json::array();
  for (const StrategyFigures& row : all) report["strategies"].push_back(row_of(row, all.front()));
  return report;
}

void print_heading(const Options& options, const ResolvedConfig& run, int ranks) {
  const Config& config = run.config;
  fmt::print("{}: {}\n", options.workload.model, describe_model(run));
  fmt::print("batch {} x {} in {} micro-batch{} per rank, {}, checkpointing {}\n",
             config.data.batch_size, config.data.sequence_length, config.data.accumulation_steps,
             config.data.accumulation_steps == 1 ? "" : "es", name_of(config.runtime.compute_dtype),
             to_string(config.sharding.activation_checkpointing));
  fmt::print("{} rank{} on {} x {} thread{}, {} steps in {} round{}\n\n", ranks,
             ranks == 1 ? "" : "s", to_string(context().device()), context().threads().size(),
             context().threads().size() == 1 ? "" : "s", options.steps, options.rounds,
             options.rounds == 1 ? "" : "s");
  flush_output();
}

/// Raises Error, before anything runs, if a strategy or the batch does not suit so many ranks.
void check_strategies(const Options& options, const Config& config, int ranks) {
  for (const std::string& strategy : options.strategies) {
    const ResolvedConfig run = resolve(variant_of(config, strategy));
    check_ranks(run, ranks);
    check_model_keys(run);
  }
}

/// One rank's part. Returns false if the strategies do not agree.
bool run(const Options& options, const ResolvedConfig& resolved, Communicator& world) {
  if (world.rank() == 0) print_heading(options, resolved, world.size());
  const auto all = compare_strategies({.config = resolved.config,
                                       .strategies = options.strategies,
                                       .steps = options.steps,
                                       .rounds = options.rounds},
                                      world);
  if (world.rank() == 0) {
    print_bytes_and_times(all);
    fmt::print("\n");
    print_results(all);
    fmt::print("\n{}\n", verdict(all));
    write_report(options.json, report_of(options, resolved.config, all));
  }
  return std::all_of(all.begin(), all.end(),
                     [&](const StrategyFigures& row) { return agree(row, all.front()); });
}

void add_options(CLI::App& app, Options& options) {
  add_workload_options(app, options.workload);
  app.add_option("--ranks", options.ranks, "Ranks, as threads; 2 by default; not under mpirun")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", options.threads,
                 "Threads per rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--steps", options.steps, "Training steps")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "Number of trainings from the start")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--strategies", options.strategies, "The others are compared with the first")
      ->delimiter(',')
      ->allow_extra_args(false)  // overrides may follow
      ->check(CLI::IsMember(strategy_variants()));
  app.add_option("--json", options.json, "Also write the figures to this file");
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  CLI::App app("Compares sharding strategies: memory, traffic, time, and whether the bits agree",
               "bench_strategies");
  tessera::add_options(app, options);
  return tessera::run_main(app, count, arguments, [&] {
    std::atomic<bool> agreed = true;
    tessera::ResolvedConfig resolved;
    tessera::WorldOptions world_options;
    tessera::check_once([&] {
      resolved =
          tessera::resolve(tessera::workload(options.workload.model, options.workload.overrides));
      world_options = tessera::world_of(options, resolved.config);
      tessera::check_strategies(options, resolved.config, tessera::planned_ranks(world_options));
    });
    tessera::run_world(world_options, [&](tessera::Communicator& world) {
      if (!tessera::run(options, resolved, world)) agreed = false;
    });
    return agreed ? 0 : 1;
  });
}
