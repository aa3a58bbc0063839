// bench_step: one training step by phase, against the device's matmul rate and its data sheet.
//
// The yardstick is somebody else's matrix product, cuBLASLt's or plain OpenBLAS's with its own
// threading, on the products of this very step, measured after every timed step in the same
// process, so that a machine whose speed drifts slows both. The ratio is model FLOP/s of the whole
// step (data, forward, backward, clipping and optimizer) over that rate; the median over the steps
// is reported.
//
// MFU is model FLOP/s over the dense peak of the GPU's data sheet (runtime/cuda/device.h). Model
// FLOPs are training_flops (models/transformer_shape.h): 6 N per token, N being the weights of
// matrix products, and 6 L H Q T for attention, which skips the masked half of its square (L layers, H heads of Q
// channels, T tokens). The PaLM paper's count (Chowdhery et al. 2022, appendix B), which most
// published figures use, has the whole square, 12 L H Q T; its figure stands beside ours.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/backend.h"
#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/workload.h"
#include "tools/config/sharding_options.h"
#include "tools/train/matmul_rate.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

struct Options {
  std::string model = "gpt2";
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  RuntimeChoices runtime;
  int threads = 0;
  int steps = 5;
  std::string json;
};

struct Timing {
  MemoryAccount memory;
  double step_ms, data_ms, forward_ms, backward_ms, optimizer_ms, matmul_rate, ratio;
};

/// Floating-point operations of a step, by two counts.
struct ModelFlops {
  double ours, palm;
};

ModelFlops flops_of(const LanguageModel& model, const DataConfig& data) {
  double products = 0.0;
  for (const MatmulShape& m :
       training_matmuls(model.shape(), data.batch_size * data.sequence_length)) {
    products += m.flops();
  }
  const double ours = training_flops(model.shape(), data.batch_size, data.sequence_length);
  return {.ours = ours, .palm = products + 2.0 * (ours - products)};
}

Timing time_step(TrainingSession& session, const Config& config, std::int64_t step) {
  Profiler& profiler = context().profiler();
  profiler.reset_totals();
  const auto begin = std::chrono::steady_clock::now();
  session.step(step, random_tokens(config.data, session.model().shape().vocab_size));
  communication_stream().synchronize();
  context().compute_stream().synchronize();
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  const MemoryAccount memory = context().allocator().account();

  const std::int64_t tokens = config.data.batch_size * config.data.sequence_length;
  const double rate =
      matmul_rate(training_matmuls(session.model().shape(), tokens),
                  sharding_options(config).compute_dtype, context().threads().size());
  context().allocator().reset_peaks();  // the yardstick's memory is not the step's
  const double flops = flops_of(session.model(), config.data).ours;
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
    peaks[std::string(enum_names<Category>()[i])] = account.categories[i].peak;
  }
  return peaks;
}

nlohmann::json or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json report_of(const Options& options, const Config& config, TrainingSession& session,
                         const std::vector<Timing>& timings) {
  const ModelFlops flops = flops_of(session.model(), config.data);
  const double step_ms = median_of(timings, &Timing::step_ms);
  const Device& device = context().device();
  const std::optional<double> peak =
      peak_matmul_rate(device, /*ranks=*/1, sharding_options(config).compute_dtype);
  const auto mfu = [&](double count) {
    return or_null(peak ? std::optional(count / (step_ms * 1e-3) / *peak) : std::nullopt);
  };
  return {{"model", options.model},
          {"parameters", session.parameter_count()},
          {"batch", config.data.batch_size},
          {"sequence", config.data.sequence_length},
          {"device", to_string(device)},
          {"dtype", name_of(config.runtime.compute_dtype)},
          {"attention", enum_name(config.kernels.attention)},
          {"threads", context().threads().size()},
          {"step_ms", step_ms},
          {"data_ms", median_of(timings, &Timing::data_ms)},
          {"forward_ms", median_of(timings, &Timing::forward_ms)},
          {"backward_ms", median_of(timings, &Timing::backward_ms)},
          {"optimizer_ms", median_of(timings, &Timing::optimizer_ms)},
          {"model_flops_per_second", flops.ours / step_ms * 1e3},
          {"yardstick", device.is_cpu() ? "OpenBLAS, f32" : "cuBLASLt"},
          {"matmul_flops_per_second", median_of(timings, &Timing::matmul_rate)},
          {"ratio", median_of(timings, &Timing::ratio)},
          {"peak_flops_per_second", or_null(peak)},
          {"mfu", mfu(flops.ours)},
          {"mfu_palm", mfu(flops.palm)},
          {"peak_bytes", peak_bytes(timings.back().memory)}};
}

void print_mfu(const nlohmann::json& report) {
  if (report["mfu"].is_null()) {
    fmt::print("  MFU          unknown  ({} is not in the table of peaks)\n",
               report["device"].get<std::string>());
    return;
  }
  fmt::print("  MFU        {:>9.3f}  of {:.0f} TFLOP/s; FLOPs: 6 N + 6 L H Q T per token\n",
             report["mfu"].get<double>(), report["peak_flops_per_second"].get<double>() * 1e-12);
  fmt::print("             {:>9.3f}  by PaLM's count, 6 N + 12 L H Q T\n",
             report["mfu_palm"].get<double>());
}

void print(const nlohmann::json& report, int steps) {
  const auto number = [&](const std::string& key) { return report[key].get<double>(); };
  const auto count = [&](const std::string& key) { return report[key].get<std::int64_t>(); };
  const auto text = [&](const std::string& key) { return report[key].get<std::string>(); };
  const double tokens = number("batch") * number("sequence");
  const double step_ms = number("step_ms");
  fmt::print("{}: {} parameters, batch {} x {}, {} on {}, {} threads, median of {} steps\n",
             text("model"), count("parameters"), count("batch"), count("sequence"), text("dtype"),
             text("device"), count("threads"), steps);
  for (const char* phase : {"data", "forward", "backward", "optimizer"}) {
    const double ms = number(std::string(phase) + "_ms");
    fmt::print("  {:<10} {:>9.2f} ms  {:>4.0f}%\n", phase, ms, 100.0 * ms / step_ms);
  }
  fmt::print("  {:<10} {:>9.2f} ms  {:.0f} tokens/s\n", "step", step_ms, tokens / step_ms * 1e3);
  fmt::print("  model      {:>9.1f} GFLOP/s\n", number("model_flops_per_second") * 1e-9);
  fmt::print("  yardstick  {:>9.1f} GFLOP/s  plain products on the step's own shapes: {}\n",
             number("matmul_flops_per_second") * 1e-9, text("yardstick"));
  fmt::print("  ratio      {:>9.3f}\n", number("ratio"));
  print_mfu(report);
  const nlohmann::json& peaks = report["peak_bytes"];
  std::int64_t persistent = 0;
  for (const char* part : {"parameters", "gradients", "optimizer"}) {
    persistent += peaks[part].get<std::int64_t>();
  }
  fmt::print("  parameters + gradients + optimizer: {} bytes = {} per parameter\n", persistent,
             static_cast<double>(persistent) / number("parameters"));
}

void run(const Options& options, const Config& config, Communicator& world) {
  set_attention_backend(config.kernels.attention);
  TrainingSession session(resolve(config), world);
  time_step(session, config, 1);  // warm-up: fills the allocator's cache
  std::vector<Timing> timings;
  for (int i = 0; i < options.steps; ++i) timings.push_back(time_step(session, config, i + 2));
  const nlohmann::json report = report_of(options, config, session, timings);
  print(report, options.steps);
  if (!options.json.empty()) write_file_atomically(options.json, report.dump(2) + "\n");
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  tessera::RuntimeChoices& runtime = options.runtime;
  CLI::App app("A training step by phase, against the device's matmul rate and its data sheet");
  app.add_option("--model", options.model, "A preset, or a configuration file")->required();
  app.add_option("--batch", options.batch, "Rows per step")->check(CLI::PositiveNumber);
  app.add_option("--sequence", options.sequence, "Tokens per row")->check(CLI::PositiveNumber);
  app.add_option("--device", runtime.device, "auto, cpu, cuda or cuda:1; else runtime.device");
  app.add_option("--dtype", runtime.dtype, "Computed with, beside f32 masters: f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  app.add_option("--attention", runtime.attention, "kernels.attention: tessera or cudnn")
      ->check(CLI::IsMember({"tessera", "cudnn"}));
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::NonNegativeNumber);
  app.add_option("--steps", options.steps, "Timed steps")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Also write the figures to this file");
  try {
    app.parse(argc, argv);
    tessera::Config config = tessera::workload(options.model, options.batch, options.sequence);
    tessera::apply(runtime, config);
    tessera::run_ranks(
        {.device = tessera::first_device(config.runtime), .threads = options.threads},
        [&](tessera::Communicator& world) { tessera::run(options, config, world); });
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "bench_step: {}\n", error.what());
    return 1;
  }
}
