// bench_strategies: what each sharding strategy needs, and the proof that all compute the same.
//
// Every strategy trains the same model from the same start on the same random tokens. Memory and
// traffic are measured on every rank and must equal the prediction to the byte; loss, gradient norm
// and weights must have the first strategy's bits (but where sums over ranks are formed in another
// order, as hsdp does on 2 x 3 ranks: there to 1e-6). NCCL is made to form its sums in the order of
// the others (sharding.deterministic). Times are medians over the steps. Every
// strategy takes turns with the first, step by step, and "/ first" is the median of the ratios of
// neighbours: a machine that is slow for a while slows both.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "sharding/comm/world.h"
#include "tools/bench/compare.h"
#include "tools/bench/workload.h"
#include "tools/config/sharding_options.h"
#include "tools/train/resolve.h"

namespace tessera {
namespace {

struct Options {
  int ranks = 0;
  std::string model = "tiny";
  int steps = 5;
  int rounds = 1;
  std::vector<std::string> strategies = strategy_variants();
  RuntimeChoices runtime;
  int threads = 0;
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::string checkpointing = "none";
  std::string json;
};

Config config_of(const Options& options) {
  Config config = workload(options.model, options.batch, options.sequence);
  apply(options.runtime, config);
  const auto checkpointing = parse_checkpointing(options.checkpointing);
  check(checkpointing.has_value(), "--checkpointing {}: expected {}", options.checkpointing,
        CheckpointingPolicy::kForms);
  config.sharding.activation_checkpointing = *checkpointing;
  return config;
}

void print_bytes_and_times(const std::vector<StrategyFigures>& all) {
  // KiB unless that gets long.
  const bool small = all.front().measured.parameters < std::int64_t{10} << 20;
  const auto bytes = [&](std::int64_t count) {
    return fmt::format("{:.1f}", static_cast<double>(count) / (small ? 0x1p10 : 0x1p20));
  };
  constexpr const char* kRow =
      "{:<10} {:>10} {:>9} {:>9} {:>13} {:>11} {:>9} {:>9} {:>8} {:>8} {:>9}\n";
  const auto line = [&](const auto&... cells) { fmt::print(fmt::runtime(kRow), cells...); };
  const char* unit = small ? "KiB" : "MiB";
  line("", "parameters", "gradients", "optimizer", "communication", "activations", "sent/step",
       "step", "/ first", "exposed", "tokens/s");
  line("", unit, unit, unit, unit, unit, unit, "ms", "", "ms", "");
  for (const StrategyFigures& row : all) {
    line(row.strategy, bytes(row.measured.parameters), bytes(row.measured.gradients),
         bytes(row.measured.optimizer), bytes(row.measured.communication), bytes(row.activations),
         bytes(row.measured.bytes_sent), fmt::format("{:.2f}", row.step_ms),
         fmt::format("{:.3f}", row.step_ratio), fmt::format("{:.2f}", row.exposed_communication_ms),
         fmt::format("{:.0f}", row.tokens_per_second));
  }
}

void print_results(const std::vector<StrategyFigures>& all) {
  fmt::print("{:<10} {:>14} {:>22} {:>18}\n", "", "loss", "gradient norm", "weights");
  for (const StrategyFigures& row : all) {
    const char* comparison = same_bits(row, all.front()) ? "same bits"
                             : agree(row, all.front())   ? "another tree of sums: to rounding"
                                                         : "OTHER BITS";
    fmt::print("{:<10} {:>14.9g} {:>22.17g} {:>18}  {}\n", row.strategy, row.loss,
               row.gradient_norm, fmt::format("{:016x}", row.weights_checksum), comparison);
  }
}

/// "All agree ..." or which do not.
std::string verdict(const std::vector<StrategyFigures>& all) {
  std::string others;
  std::string rounded;
  for (const StrategyFigures& row : all) {
    if (!agree(row, all.front())) others += fmt::format(" {}", row.strategy);
    if (!same_bits(row, all.front())) rounded += fmt::format(", {} to rounding", row.strategy);
  }
  if (!others.empty()) {
    return fmt::format("They do NOT agree: unlike {} are{}.", all.front().strategy, others);
  }
  return fmt::format("All agree: one loss, one gradient norm, the same weights{}.", rounded);
}

nlohmann::json predicted_and_measured(const StrategyFigures& row, std::int64_t Footprint::*part) {
  return {{"predicted", row.predicted.*part}, {"measured", row.measured.*part}};
}

nlohmann::json row_of(const StrategyFigures& row, const StrategyFigures& first, int ranks) {
  return {
      {"strategy", row.strategy},
      {"ranks", ranks},
      {"loss", std::stod(fmt::format("{:.9g}", row.loss))},  // its digits, not its double's
      {"gradient_norm", row.gradient_norm},
      {"weights_checksum", fmt::format("{:016x}", row.weights_checksum)},
      {"same_bits", same_bits(row, first)},
      {"bytes_sent_predicted", row.predicted.bytes_sent},
      {"bytes_sent_measured", row.measured.bytes_sent},
      {"memory",
       {{"parameters", predicted_and_measured(row, &Footprint::parameters)},
        {"gradients", predicted_and_measured(row, &Footprint::gradients)},
        {"optimizer", predicted_and_measured(row, &Footprint::optimizer)},
        {"communication", predicted_and_measured(row, &Footprint::communication)}}},
      {"activations_measured", row.activations},
      {"step_ms", row.step_ms},
      {"step_ratio", row.step_ratio},
      {"tokens_per_second", row.tokens_per_second},
      {"communication_ms", row.communication_ms},
      {"exposed_communication_ms", row.exposed_communication_ms},
  };
}

void write_json(const std::string& path, const std::vector<StrategyFigures>& all, int ranks) {
  nlohmann::json rows = nlohmann::json::array();
  for (const StrategyFigures& row : all) rows.push_back(row_of(row, all.front(), ranks));
  write_file_atomically(path, nlohmann::json{{"strategies", rows}}.dump(2) + "\n");
}

void report(const Options& options, const std::vector<StrategyFigures>& all) {
  fmt::print(
      "Memory and bytes sent are those of the rank with the most, measured on every rank and as "
      "predicted to the byte.\n\n");
  print_bytes_and_times(all);
  fmt::print("\n");
  print_results(all);
  fmt::print("\n{}\n", verdict(all));
  if (!options.json.empty()) write_json(options.json, all, context().world_size());
}

/// One rank's part; false if the strategies do not agree.
bool run(const Options& options, Config config, Communicator& world) {
  std::int64_t& rows = config.data.batch_size;
  if (options.batch == 0) rows = (rows + world.size() - 1) / world.size() * world.size();
  const ResolvedConfig resolved = resolve(variant_of(config, options.strategies.front()));
  check_ranks(resolved, world.size());
  const std::string model = describe_model(resolved);  // raises before anything is printed
  if (world.rank() == 0) {
    fmt::print("{}: {}, batch {} x {}, {}, {} ranks on {} x {} threads, {} steps in {} rounds\n",
               options.model, model, config.data.batch_size, config.data.sequence_length,
               name_of(config.runtime.compute_dtype), world.size(), to_string(context().device()),
               context().threads().size(), options.steps, options.rounds);
    std::fflush(stdout);
  }
  const auto all = compare_strategies({.config = config,
                                       .strategies = options.strategies,
                                       .steps = options.steps,
                                       .rounds = options.rounds},
                                      world);
  if (world.rank() == 0) report(options, all);
  return std::all_of(all.begin(), all.end(),
                     [&](const StrategyFigures& row) { return agree(row, all.front()); });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  CLI::App app("Sharding strategies compared: memory, traffic, time, and whether the bits agree");
  app.add_option("--ranks", options.ranks, "Ranks, as threads; not under mpirun")
      ->check(CLI::PositiveNumber);
  app.add_option("--model", options.model, "tiny, a preset, or a configuration file");
  app.add_option("--steps", options.steps, "Training steps")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "How often each strategy trains from the start")
      ->check(CLI::PositiveNumber);
  app.add_option("--strategies", options.strategies, "Which, the first being compared with")
      ->delimiter(',')
      ->check(CLI::IsMember(tessera::strategy_variants()));
  app.add_option("--device", options.runtime.device,
                 "auto, cpu, cuda or cuda:1: of the first rank; else runtime.device");
  app.add_option("--dtype", options.runtime.dtype, "Computed with: f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  app.add_option("--threads", options.threads, "Threads per rank; 0: the cores shared out")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--batch", options.batch, "Rows per step, of all ranks")
      ->check(CLI::PositiveNumber);
  app.add_option("--sequence", options.sequence, "Tokens per row")->check(CLI::PositiveNumber);
  app.add_option("--checkpointing", options.checkpointing, "sharding.activation_checkpointing");
  app.add_option("--json", options.json, "Also write the figures to this file");
  try {
    app.parse(argc, argv);
    std::atomic<bool> agreed = true;
    const tessera::Config config = tessera::config_of(options);
    tessera::run_world({.ranks = options.ranks,
                        .device = tessera::first_device(config.runtime),
                        .threads = options.threads,
                        .communicator = config.sharding.communicator,
                        .deterministic = true},
                       [&](tessera::Communicator& world) {
                         if (!tessera::run(options, config, world)) agreed = false;
                       });
    return agreed ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tessera::FailedElsewhere&) {
    return 1;
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "bench_strategies: {}\n", error.what());
    return 1;
  }
}
