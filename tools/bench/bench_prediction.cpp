// bench_prediction: the predicted time of a step next to the measured one, for every strategy.
//
// First the machine's rates are measured on this very model: the computation of one rank, and of as
// many as there are cores, and for each number of ranks the latency and bandwidth of collectives.
// Then `tessera plan` predicts each strategy's step, and a run measures it. Ranks are threads of this
// process, each with one thread. More ranks than cores share the cores evenly in the prediction, and
// their links are those measured with as many ranks.
//
// A step is the median over the steps, from a common start to the end of its communication. Every
// rank has the same rows at any number of ranks, so the batch grows with them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/threads.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/command_line.h"
#include "tools/bench/compare.h"
#include "tools/bench/report.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/compute_rates.h"
#include "tools/measure/link.h"
#include "tools/measure/median.h"
#include "tools/measure/workload.h"
#include "tools/plan/figures.h"
#include "tools/plan/machine_file.h"
#include "tools/program/command_line.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {
namespace {

struct Options {
  WorkloadOptions workload = {.model = "tiny"};
  std::vector<int> ranks = {1, 2, 4};
  std::vector<std::string> strategies = strategy_variants();
  int steps = 7;
  std::string machine;
  std::string json;
};

struct Row {
  int ranks;
  std::string strategy;
  double predicted_ms, measured_ms, predicted_exposed_ms, measured_exposed_ms;

  double error() const { return predicted_ms / measured_ms - 1.0; }
};

/// The configuration on so many ranks, with one thread each and the rows of one rank.
Config on(const Config& one, int ranks) {
  Config config = one;
  config.data.batch_size *= batch_ranks(one, ranks);
  config.runtime.ranks = 0;
  config.runtime.threads = 1;
  return config;
}

/// Strategies that suit so many ranks.
std::vector<std::string> suitable(const Options& options, const Config& config, int ranks) {
  std::vector<std::string> names;
  for (const std::string& name : options.strategies) {
    try {
      check_ranks(resolve(variant_of(config, name)), ranks);
      names.push_back(name);
    } catch (const Error&) {
      continue;
    }
  }
  return names;
}

/// One rank computes the whole model: its rates need no cuts.
Config without_cuts(Config config) {
  ShardingConfig& sharding = config.sharding;
  sharding.tensor_parallel = sharding.context_parallel = sharding.expert_parallel = 1;
  sharding.pipeline_parallel = sharding.pipeline_chunks = 1;
  sharding.pipeline_stages.clear();
  return config;
}

MachineRates measure_machine(const ResolvedConfig& run, const std::vector<int>& ranks, int steps) {
  const int cores = available_threads();
  MachineRates machine = machine_to_fit("", cores);
  for (const int count : {1, cores}) {
    for (const ComputeRates& rates : measure_compute(run, {.ranks = count, .steps = steps})) {
      replace_rates(machine, rates);
    }
  }
  for (const int count : ranks) {
    if (count == 1) continue;
    run_ranks({.ranks = count, .threads = 1}, [&](Communicator& world) {
      const Link link = measure_link(world);
      if (world.rank() == 0) replace_link(machine, link);
    });
  }
  return machine;
}

std::vector<Row> rows_of(const Options& options, const Config& one, int ranks,
                         const MachineRates& machine) {
  std::vector<Row> rows;
  const ShardingConfig& cuts = one.sharding;
  if (ranks % (cuts.tensor_parallel * cuts.context_parallel * cuts.pipeline_parallel) != 0) {
    return rows;
  }
  const Config config = on(one, ranks);
  const std::vector<std::string> names = suitable(options, config, ranks);
  if (names.empty()) return rows;
  std::vector<RowFigures> measured;
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    auto figures =
        compare_rows({.rows = compare_by_strategies(config, names), .steps = options.steps}, world);
    if (world.rank() == 0) measured = std::move(figures);
  });
  for (std::size_t i = 0; i < names.size(); ++i) {
    const PlanFigures plan =
        plan_figures(variant_of(config, names[i]), {.ranks = ranks, .machine = machine});
    check(plan.figures.time.has_value(),
          "bench_prediction: no time is predicted for {}, whose state is in the host's memory; the "
          "machine has no rates of it. Leave out sharding.offload",
          names[i]);
    const Timeline& timeline = plan.figures.time->timeline;
    rows.push_back({.ranks = ranks,
                    .strategy = names[i],
                    .predicted_ms = 1e3 * timeline.seconds,
                    .measured_ms = measured[i].step_ms,
                    .predicted_exposed_ms = 1e3 * timeline.exposed,
                    .measured_exposed_ms = measured[i].exposed_communication_ms});
  }
  return rows;
}

void print_machine(const MachineRates& machine) {
  fmt::print("{}, rates {}\n", machine.name, machine.source);
  for (const ComputeRates& rates : machine.compute) {
    fmt::print("  {} rank{} at once: forward {:.1f} GFLOP/s, backward {:.1f}, memory {:.2f} GB/s\n",
               rates.ranks, rates.ranks == 1 ? "" : "s", 1e-9 * rates.forward,
               1e-9 * rates.backward, 1e-9 * rates.memory);
  }
  for (const Link& link : machine.links) {
    fmt::print("  link of {} ranks: latency {:.1f} us, {:.2f} GB/s\n", link.ranks,
               1e6 * link.latency, 1e-9 * link.bandwidth);
  }
}

void print_rows(const std::vector<Row>& rows) {
  fmt::print("\n{:>5} {:<10} {:>12} {:>12} {:>8} {:>15} {:>15}\n", "ranks", "", "predicted ms",
             "measured ms", "error", "exposed, pred.", "measured");
  for (const Row& row : rows) {
    fmt::print("{:>5} {:<10} {:>12.2f} {:>12.2f} {:>7.0f}% {:>15.2f} {:>15.2f}\n", row.ranks,
               row.strategy, row.predicted_ms, row.measured_ms, 100.0 * row.error(),
               row.predicted_exposed_ms, row.measured_exposed_ms);
  }
}

/// The median of the errors' magnitudes over the rows on so many ranks; 0: on any number.
double median_error(const std::vector<Row>& rows, int ranks) {
  std::vector<double> errors;
  for (const Row& row : rows) {
    if (ranks == 0 || row.ranks == ranks) errors.push_back(std::abs(row.error()));
  }
  return errors.empty() ? 0.0 : median(errors);
}

nlohmann::ordered_json report_of(const Options& options, const std::vector<Row>& rows) {
  RankContext here({.threads = 1});
  const ContextGuard guard(here);
  nlohmann::ordered_json report = new_report("bench_prediction");
  report["model"] = options.workload.model;
  report["median_error"] = median_error(rows, 0);
  report["steps"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    report["steps"].push_back({{"ranks", row.ranks},
                               {"strategy", row.strategy},
                               {"predicted_ms", row.predicted_ms},
                               {"measured_ms", row.measured_ms},
                               {"predicted_exposed_ms", row.predicted_exposed_ms},
                               {"measured_exposed_ms", row.measured_exposed_ms}});
  }
  return report;
}

void run(const Options& options) {
  const Config one = workload(options.workload.model, options.workload.overrides);
  const ResolvedConfig alone = resolve(on(without_cuts(one), 1));
  fmt::print("{}: {}, {} x {} tokens per rank\n", options.workload.model, describe_model(alone),
             alone.config.data.batch_size, alone.config.data.sequence_length);
  const MachineRates machine = options.machine.empty()
                                   ? measure_machine(alone, options.ranks, options.steps)
                                   : load_machine(options.machine);
  print_machine(machine);
  flush_output();
  std::vector<Row> rows;
  for (const int ranks : options.ranks) {
    for (Row& row : rows_of(options, one, ranks, machine)) rows.push_back(std::move(row));
  }
  print_rows(rows);
  fmt::print("\nMedian error of the step: {:.1f}%", 100.0 * median_error(rows, 0));
  for (const int ranks : options.ranks) {
    fmt::print(", on {} rank{} {:.1f}%", ranks, ranks == 1 ? "" : "s",
               100.0 * median_error(rows, ranks));
  }
  fmt::print("\n");
  write_report(options.json, report_of(options, rows));
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app("bench_prediction",
                       "Compares predicted with measured steps of every strategy");
  app.shows_defaults();
  tessera::add_workload_options(app, options.workload);
  app.option("--ranks", options.ranks, "Numbers of ranks, as threads")
      .separated_by_commas()
      .one_argument()  // overrides may follow
      .range(1, 64);
  app.option("--strategies", options.strategies, "Those that suit the ranks are compared")
      .separated_by_commas()
      .one_argument()
      .one_of(tessera::strategy_variants());
  app.option("--steps", options.steps, "Timed steps").range(2, 1 << 20);
  app.option("--machine", options.machine, "A machine file, in place of measured rates");
  app.option("--json", options.json, "Also write the figures to this file");
  return tessera::run_main(app, count, arguments, [&] {
    tessera::run(options);
    return 0;
  });
}
