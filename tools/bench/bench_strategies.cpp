// bench_strategies: the needs of several configurations, and the proof that strategies compute the
// same.
//
// By default the rows are every sharding strategy of one configuration. --rows gives each row
// settings of its own, such as a dtype, and --pair takes configurations by name. Every row trains
// from the start on random tokens. Memory and traffic are measured on every rank and must equal the
// prediction to the byte. Rows that differ only in keys without an effect on results must have the
// first row's bits: loss, gradient norm and weights. (One exception: where sums over ranks have
// another order, as for hsdp on 2 x 3 ranks, they must agree to 1e-6.) NCCL sums in the order of
// the other communicators (sharding.deterministic), unless --any-order is given. Times are medians
// over the steps. Every row runs in turns with the first one, step by step, and is compared with its
// neighbour in time: a machine that is slow for a while slows both.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/context.h"
#include "sharding/comm/world.h"
#include "tools/bench/command_line.h"
#include "tools/bench/comparison_report.h"
#include "tools/bench/report.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/launch/rank_commands.h"
#include "tools/measure/workload.h"
#include "tools/program/command_line.h"

namespace tessera {
namespace {

struct Options {
  WorkloadOptions workload = {.model = "tiny"};
  int ranks = 0;
  int threads = 0;
  int steps = 5;
  int rounds = 1;
  std::vector<std::string> strategies = strategy_variants();
  std::string rows;
  std::vector<std::string> pair;
  bool any_order = false;
  std::string json;
};

/// The rows that the command line asks for, ready to run.
std::vector<Compared> rows_of(const Options& options) {
  std::vector<std::string> overrides = options.workload.overrides;
  if (options.ranks > 0) overrides.push_back(fmt::format("runtime.ranks={}", options.ranks));
  if (options.threads > 0) overrides.push_back(fmt::format("runtime.threads={}", options.threads));
  const auto base = [&] { return workload(options.workload.model, overrides); };
  std::vector<Compared> rows;
  if (!options.pair.empty()) {
    rows = compare_by_names(options.pair, overrides);
  } else if (!options.rows.empty()) {
    rows = compare_by_options(base(), options.rows);
  } else {
    rows = compare_by_strategies(base(), options.strategies);
  }
  prepare_rows(rows);
  return rows;
}

/// A line for each row with other settings than the first.
void print_changes(const std::vector<Compared>& rows) {
  for (const Compared& row : rows) {
    std::string line;
    for (const auto& [key, value] : changes_of(row.config, rows.front().config)) {
      line += fmt::format(" {}={}", key, value);
    }
    if (!line.empty()) fmt::print("{}:{}\n", row.name, line);
  }
}

/// "1 rank", "2 ranks", or "1 to 2 ranks" where rows differ.
std::string range_of(const std::vector<std::int64_t>& counts, std::string_view what) {
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  if (*least != *most) return fmt::format("{} to {} {}s", *least, *most, what);
  return fmt::format("{} {}{}", *most, what, *most == 1 ? "" : "s");
}

void print_heading(const Options& options, const std::vector<Compared>& rows, int world_size) {
  std::vector<std::int64_t> ranks, threads;
  for (const Compared& row : rows) {
    const RuntimeConfig& runtime = row.config.runtime;
    ranks.push_back(runtime.ranks > 0 ? runtime.ranks : world_size);
    threads.push_back(runtime.threads > 0 ? runtime.threads : context().threads().size());
  }
  const Config& config = rows.front().config;
  const bool pairs = !options.pair.empty();
  fmt::print("{}: {}\n", pairs ? rows.front().name : options.workload.model, rows.front().model);
  fmt::print("batch {} x {} in {} micro-batch{} per rank, {}, checkpointing {}\n",
             config.data.batch_size, config.data.sequence_length, config.data.accumulation_steps,
             config.data.accumulation_steps == 1 ? "" : "es", name_of(config.runtime.compute_dtype),
             to_string(config.sharding.activation_checkpointing));
  if (pairs) print_changes(rows);
  fmt::print("{} on {} x {}, {} steps in {} round{}\n\n", range_of(ranks, "rank"),
             to_string(context().device()), range_of(threads, "thread"), options.steps,
             options.rounds, options.rounds == 1 ? "" : "s");
  flush_output();
}

nlohmann::ordered_json report_of(const Options& options, const Comparison& comparison) {
  nlohmann::ordered_json report = new_report("bench_strategies");
  report["model"] = options.pair.empty() ? options.workload.model : options.pair.front();
  report["steps"] = options.steps;
  report["rounds"] = options.rounds;
  report["config"] = config_entries(comparison.rows.front().config);
  report["strategies"] = json_of(comparison);
  return report;
}

/// One rank's part. Returns false on rank 0 if rows do not agree that must.
bool run(const Options& options, const std::vector<Compared>& rows, Communicator& world) {
  if (world.rank() == 0) print_heading(options, rows, world.size());
  const Comparison comparison = {
      .rows = rows,
      .any_order = options.any_order,
      .figures =
          compare_rows({.rows = rows, .steps = options.steps, .rounds = options.rounds}, world)};
  if (world.rank() != 0) return true;
  print(comparison);
  write_report(options.json, report_of(options, comparison));
  return comparison.agrees();
}

void add_options(Command& app, Options& options) {
  const Option model = add_workload_options(app, options.workload);
  app.option("--ranks", options.ranks,
             "Ranks: threads, or with NCCL a process for each GPU; 2 by default, or 1 for strategy "
             "single; not under mpirun")
      .range(1, 1024);
  app.option("--threads", options.threads, "Threads per rank; 0: the cores divided by the ranks")
      .range(0, 4096);
  app.option("--steps", options.steps, "Training steps").range(1, 1 << 20);
  app.option("--rounds", options.rounds, "Number of trainings from the start").range(1, 1 << 20);
  const auto list = [&](const char* name, std::vector<std::string>& names, const char* text) {
    return app.option(name, names, text)
        .separated_by_commas()
        .one_argument();  // overrides may follow
  };
  const Option strategies =
      list("--strategies", options.strategies, "The others are compared with the first")
          .one_of(strategy_variants());
  const Option rows =
      app.option("--rows", options.rows,
                 "Rows of settings, compared with the first: 'fsdp; fsdp dtype=bf16; fsdp "
                 "checkpointing=full live_gathers=1'")
          .excludes(strategies);
  list("--pair", options.pair,
       "Two configurations or more, as for --model, compared with the first")
      .excludes(strategies)
      .excludes(rows)
      .excludes(model);
  app.flag("--any-order", options.any_order,
           "NCCL adds in an order of its own: faster, and results are not compared");
  app.option("--json", options.json, "Also write the figures to this file");
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app(
      "bench_strategies",
      "Compares sharding strategies, or any configurations: memory, traffic, time, and whether the "
      "bits agree");
  app.shows_defaults();
  tessera::add_options(app, options);
  return tessera::run_main(app, count, arguments, [&] {
    std::atomic<bool> agreed = true;
    std::vector<tessera::Compared> rows;
    tessera::check_once({}, [&] { rows = tessera::rows_of(options); });
    tessera::WorldOptions world = tessera::world_of(rows);
    world.deterministic = !options.any_order;
    if (tessera::are_processes(world)) {
      return tessera::run_as_ranks(count, arguments, world.ranks);
    }
    tessera::run_world(world, [&](tessera::Communicator& world) {
      if (!tessera::run(options, rows, world)) agreed = false;
    });
    return agreed ? 0 : 1;
  });
}
