// bench_step: one training step by phase, against the machine's matmul rate.
//
// The yardstick is plain OpenBLAS, with its own threading, on the matrix products of this very
// step, measured after every timed step in the same process, so that a machine whose speed drifts
// slows both. The ratio is model FLOP/s of the whole step (data, forward, backward, clipping and
// optimizer) over that rate; the median over the steps is reported.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "sharding/comm/threads.h"
#include "tools/bench/workload.h"
#include "tools/train/matmul_rate.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

struct Options {
  std::string model = "gpt2";
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  int threads = 0;
  int steps = 5;
  std::string json;
};

struct Timing {
  MemoryAccount memory;
  double step_ms, data_ms, forward_ms, backward_ms, optimizer_ms, sgemm_rate, ratio;
};

Timing time_step(TrainingSession& session, const Config& config, std::int64_t step) {
  Profiler& profiler = context().profiler();
  profiler.reset_totals();
  const auto begin = std::chrono::steady_clock::now();
  session.step(step, random_tokens(config.data, session.model().vocab_size()));
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  const MemoryAccount memory = context().allocator().account();

  const std::int64_t batch = config.data.batch_size;
  const std::int64_t length = config.data.sequence_length;
  const double rate =
      sgemm_rate(session.model().training_matmuls(batch * length), context().threads().size());
  context().allocator().reset_peaks();  // the yardstick's memory is not the step's
  const double flops = session.model().training_flops(batch, length);
  return {memory,
          elapsed.count(),
          profiler.total_ms("data"),
          profiler.total_ms("forward"),
          profiler.total_ms("backward"),
          profiler.total_ms("optimizer"),
          rate,
          flops / (elapsed.count() * 1e-3) / rate};
}

double median_of(const std::vector<Timing>& timings, double Timing::*field) {
  std::vector<double> values;
  for (const Timing& timing : timings) values.push_back(timing.*field);
  return median(values);
}

nlohmann::json peak_bytes(const MemoryAccount& account) {
  nlohmann::json peaks;
  for (int i = 0; i < kCategories; ++i) {
    peaks[std::string(kCategoryNames[i])] = account.categories[i].peak;
  }
  return peaks;
}

void run(const Options& options, Communicator& world) {
  const int threads = context().threads().size();
  const Config config = workload(options.model, options.batch, options.sequence);
  TrainingSession session(config, /*vocab_size=*/0, world);

  time_step(session, config, 1);  // warm-up: fills the allocator's cache
  std::vector<Timing> timings;
  for (int i = 0; i < options.steps; ++i) timings.push_back(time_step(session, config, i + 2));

  const std::int64_t batch = config.data.batch_size;
  const std::int64_t length = config.data.sequence_length;
  const std::int64_t parameters = session.parameter_count();
  const double flops = session.model().training_flops(batch, length);
  const double step_ms = median_of(timings, &Timing::step_ms);
  const double rate = median_of(timings, &Timing::sgemm_rate);
  const double ratio = median_of(timings, &Timing::ratio);
  const nlohmann::json peaks = peak_bytes(timings.back().memory);
  const std::int64_t persistent = peaks["parameters"].get<std::int64_t>() +
                                  peaks["gradients"].get<std::int64_t>() +
                                  peaks["optimizer"].get<std::int64_t>();

  fmt::print("{}: {} parameters, batch {} x {}, f32, {} threads, median of {} steps\n",
             options.model, parameters, batch, length, threads, options.steps);
  for (const auto& [name, field] : {std::pair{"data", &Timing::data_ms},
                                    {"forward", &Timing::forward_ms},
                                    {"backward", &Timing::backward_ms},
                                    {"optimizer", &Timing::optimizer_ms}}) {
    const double ms = median_of(timings, field);
    fmt::print("  {:<10} {:>9.2f} ms  {:>4.0f}%\n", name, ms, 100.0 * ms / step_ms);
  }
  fmt::print("  {:<10} {:>9.2f} ms  {:.0f} tokens/s\n", "step", step_ms,
             static_cast<double>(batch * length) / step_ms * 1e3);
  fmt::print("  model      {:>9.1f} GFLOP/s\n", flops / step_ms * 1e-6);
  fmt::print("  yardstick  {:>9.1f} GFLOP/s  plain OpenBLAS SGEMM on the step's own shapes\n",
             rate * 1e-9);
  fmt::print("  ratio      {:>9.3f}\n", ratio);
  fmt::print("  parameters + gradients + optimizer: {} bytes = {} per parameter\n", persistent,
             static_cast<double>(persistent) / static_cast<double>(parameters));

  if (options.json.empty()) return;
  const nlohmann::json report = {{"model", options.model},
                                 {"parameters", parameters},
                                 {"batch", batch},
                                 {"sequence", length},
                                 {"threads", threads},
                                 {"step_ms", step_ms},
                                 {"data_ms", median_of(timings, &Timing::data_ms)},
                                 {"forward_ms", median_of(timings, &Timing::forward_ms)},
                                 {"backward_ms", median_of(timings, &Timing::backward_ms)},
                                 {"optimizer_ms", median_of(timings, &Timing::optimizer_ms)},
                                 {"model_flops_per_second", flops / step_ms * 1e3},
                                 {"sgemm_flops_per_second", rate},
                                 {"ratio", ratio},
                                 {"peak_bytes", peaks}};
  write_file_atomically(options.json, report.dump(2) + "\n");
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  CLI::App app("A training step by phase, against the machine's matmul rate");
  app.add_option("--model", options.model, "A preset, or a configuration file")->required();
  app.add_option("--batch", options.batch, "Rows per step")->check(CLI::PositiveNumber);
  app.add_option("--sequence", options.sequence, "Tokens per row")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::NonNegativeNumber);
  app.add_option("--steps", options.steps, "Timed steps")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Also write the figures to this file");
  try {
    app.parse(argc, argv);
    tessera::run_ranks({.threads = options.threads},
                       [&](tessera::Communicator& world) { tessera::run(options, world); });
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "bench_step: {}\n", error.what());
    return 1;
  }
}
