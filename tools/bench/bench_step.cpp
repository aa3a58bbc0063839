// bench_step: one training step by phase, compared with the device's matmul rate and its data sheet.
//
// The baseline is a library's matrix product: cuBLASLt's, or plain OpenBLAS's with its own threading.
// It multiplies the shapes of this very step, after every timed step in the same process, so that a
// machine whose speed drifts slows both. (The head's shapes have the vocabulary rounded up to a
// multiple of 64: cuBLASLt is slow for odd leading dimensions.) The ratio is model FLOP/s of the whole
// step (data, forward, backward, clipping and optimizer) over that rate; the report has the median
// over the steps.
//
// MFU is model FLOP/s over the dense peak of the GPU's data sheet (runtime/cuda/device.h). Model
// FLOPs are training_flops(): 6 N per token, where N is the number of weights in matrix products, and
// 6 L H Q T for attention, which skips the masked half of its square (L layers, H heads of Q channels,
// T tokens). The PaLM paper's count (Chowdhery et al. 2022, appendix B), which most published figures
// use, has the whole square, 12 L H Q T; the report has both.
//
// With --sustained the steps then follow each other for some seconds, as in training: a GPU that is hot
// and at its limit of power has a lower clock than in single steps. Next to this MFU stand the means of
// its clock and its power (tools/bench/gpu_samples.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/integer.h"
#include "runtime/threads.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/command_line.h"
#include "tools/bench/gpu_log.h"
#include "tools/bench/host_calls.h"
#include "tools/bench/libraries.h"
#include "tools/bench/report.h"
#include "tools/bench/sustained.h"
#include "tools/bench/sustained_report.h"
#include "tools/config/kernel_options.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/compute_rates.h"
#include "tools/measure/matmul_rate.h"
#include "tools/measure/median.h"
#include "tools/measure/workload.h"
#include "tools/plan/advice.h"
#include "tools/plan/machine_file.h"
#include "tools/program/command_line.h"
#include "tools/train/lengths.h"
#include "tools/train/resolve.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

struct Options {
  WorkloadOptions workload;
  int threads = 0;
  int steps = 5;
  double sustained = 0.0;  // seconds
  bool print_shape = false;
  std::string fit;
  std::string json;
};

struct Timing {
  MemoryAccount memory;
  double step_ms, data_ms, forward_ms, backward_ms, optimizer_ms, matmul_rate, ratio;
  HostCallCounts calls = {};
};

/// Floating-point operations of a step, by two counts.
struct ModelFlops {
  double ours, palm;
};

ModelFlops flops_of(const TransformerShape& shape, const DataConfig& data) {
  double products = 0.0;
  for (const MatmulShape& m : training_matmuls(shape, tokens_per_step(data))) products += m.flops();
  const double ours = training_flops(shape, data.batch_size, data.sequence_length);
  return {.ours = ours, .palm = products + 2.0 * (ours - products)};
}

/// The rate of the baseline on the shapes of one micro-batch.
double baseline_rate(TransformerShape shape, const ResolvedConfig& run) {
  shape.vocab_size = round_up(shape.vocab_size, 64);
  const std::int64_t tokens = tokens_per_step(run.config.data) / run.config.data.accumulation_steps;
  return matmul_rate(training_matmuls(shape, tokens), run.sharding.compute_dtype,
                     context().threads().size());
}

Timing time_step(TrainingSession& session, const ResolvedConfig& run, std::int64_t step) {
  const TransformerShape& shape = session.model().shape();
  Profiler& profiler = context().profiler();
  profiler.reset_totals();
  const HostCallCounts calls_before = host_calls();
  const auto begin = std::chrono::steady_clock::now();
  session.step(step, random_tokens(run.config.data, shape.vocab_size));
  communication_stream().synchronize();
  context().compute_stream().synchronize();
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  const HostCallCounts calls = host_calls() - calls_before;
  const MemoryAccount memory = context().allocator().account();

  const double rate = baseline_rate(shape, run);
  if (context().device().is_cpu()) wait_for_openblas_threads();
  context().allocator().reset_peaks();  // the baseline's memory is not the step's
  const double flops = flops_of(shape, run.config.data).ours;
  return {memory,
          elapsed.count(),
          profiler.total_ms("data"),
          profiler.total_ms("forward"),
          profiler.total_ms("backward"),
          profiler.total_ms("optimizer"),
          rate,
          flops / (elapsed.count() * 1e-3) / rate,
          calls};
}

double median_of(const std::vector<Timing>& timings, double Timing::*field) {
  std::vector<double> values;
  for (const Timing& timing : timings) values.push_back(timing.*field);
  return median(values);
}

nlohmann::ordered_json peak_bytes(const MemoryAccount& account) {
  nlohmann::ordered_json peaks;
  for (const std::string_view name : enum_names<Category>()) {
    peaks[std::string(name)] = account[enum_from_name<Category>(name)].peak;
  }
  return peaks;
}

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json shape_entries(const TransformerShape& shape) {
  nlohmann::ordered_json entries = {
      {"layers", shape.layers},       {"width", shape.width},
      {"heads", shape.heads},         {"kv_heads", shape.kv_heads},
      {"head_size", shape.head_size}, {"mlp_width", shape.mlp_width},
      {"context", shape.context},     {"vocab_size", shape.vocab_size},
      {"gated_mlp", shape.gated_mlp}};
  const TransformerShape::Experts& experts = shape.experts;
  if (experts.layers > 0) {
    entries.update({{"layers_with_experts", experts.layers},
                    {"experts", experts.count},
                    {"experts_per_token", experts.per_token},
                    {"expert_width", experts.width},
                    {"shared_expert_width", experts.shared_width}});
  }
  return entries;
}

nlohmann::ordered_json sizes_of(const LanguageModel& model) {
  nlohmann::ordered_json sizes = shape_entries(model.shape());
  sizes["parameters"] = parameter_count(model);
  return sizes;
}

/// Steps without a pause, from number `next` on.
Sustained sustained_steps(const Options& options, TrainingSession& session,
                          const ResolvedConfig& run, std::int64_t next) {
  const BatchSource tokens = random_tokens(run.config.data, session.model().shape().vocab_size);
  const auto finish = [] {
    communication_stream().synchronize();
    context().compute_stream().synchronize();
  };
  return sustain([&] { session.step(next++, tokens); }, finish, options.sustained,
                 nvidia_smi_name(context().device()));
}

nlohmann::ordered_json report_of(const Options& options, const ResolvedConfig& run,
                                 TrainingSession& session, const std::vector<Timing>& timings,
                                 const std::optional<Sustained>& sustained) {
  const DataConfig& data = run.config.data;
  const TransformerShape& shape = session.model().shape();
  const ModelFlops flops = flops_of(shape, data);
  const double step_ms = median_of(timings, &Timing::step_ms);
  const Device& device = context().device();
  const std::optional<double> peak =
      peak_matmul_rate(device, /*ranks=*/1, run.sharding.compute_dtype);
  const auto mfu = [&](double count) {
    return or_null(peak ? std::optional(count / (step_ms * 1e-3) / *peak) : std::nullopt);
  };
  nlohmann::ordered_json report = new_report("bench_step");
  report.update({{"model", options.workload.model},
                 {"steps", options.steps},
                 {"parameters", parameter_count(session.model())},
                 {"strategy", variant_name(run.sharding)},
                 {"step_ms", step_ms},
                 {"data_ms", median_of(timings, &Timing::data_ms)},
                 {"forward_ms", median_of(timings, &Timing::forward_ms)},
                 {"backward_ms", median_of(timings, &Timing::backward_ms)},
                 {"optimizer_ms", median_of(timings, &Timing::optimizer_ms)},
                 {"tokens_per_second", static_cast<double>(tokens_per_step(data)) / step_ms * 1e3},
                 {"model_flops_per_second", flops.ours / step_ms * 1e3},
                 {"baseline", device.is_cpu() ? describe_openblas(cpu::best_isa()) : "cuBLASLt"},
                 {"baseline_flops_per_second", median_of(timings, &Timing::matmul_rate)},
                 {"ratio", median_of(timings, &Timing::ratio)},
                 {"peak_flops_per_second", or_null(peak)},
                 {"mfu", mfu(flops.ours)},
                 {"mfu_palm", mfu(flops.palm)}});
  if (sustained) {
    report["sustained"] = sustained_entries(
        *sustained,
        {.flops = flops.ours, .tokens = static_cast<double>(tokens_per_step(data)), .peak = peak});
  }
  report["peak_bytes"] = peak_bytes(timings.back().memory);
  if (counts_host_calls()) report["host_calls"] = to_json(timings.back().calls);
  report["shape"] = shape_entries(shape);
  report["config"] = config_entries(run.config);
  return report;
}

double number(const nlohmann::ordered_json& report, const char* key) {
  return report[key].get<double>();
}

std::string text(const nlohmann::ordered_json& report, const char* key) {
  return report[key].get<std::string>();
}

void print_mfu(const nlohmann::ordered_json& report) {
  if (report["mfu"].is_null()) {
    fmt::print("  MFU          unknown  ({} is not in the table of peaks)\n",
               text(report, "device"));
    return;
  }
  fmt::print("  MFU        {:>9.3f}  of {:.0f} TFLOP/s; FLOPs: 6 N + 6 L H Q T per token\n",
             number(report, "mfu"), number(report, "peak_flops_per_second") * 1e-12);
  fmt::print("             {:>9.3f}  by PaLM's count, 6 N + 12 L H Q T\n",
             number(report, "mfu_palm"));
}

void print_memory(const nlohmann::ordered_json& report) {
  std::int64_t persistent = 0;
  for (const char* part : {"parameters", "gradients", "optimizer"}) {
    persistent += report["peak_bytes"][part].get<std::int64_t>();
  }
  const auto mebibytes = [&](const char* part) {
    return report["peak_bytes"][part].get<double>() / 0x1p20;
  };
  fmt::print(
      "  memory     {:>9.2f} MiB  parameters, gradients and optimizer: {:.2f} bytes per "
      "parameter\n",
      static_cast<double>(persistent) / 0x1p20,
      static_cast<double>(persistent) / number(report, "parameters"));
  fmt::print("             {:>9.2f} MiB  slots\n", mebibytes("communication"));
  fmt::print("             {:>9.2f} MiB  activations\n", mebibytes("activations"));
}

void print(const nlohmann::ordered_json& report, const ResolvedConfig& run, int steps) {
  const double step_ms = number(report, "step_ms");
  const int threads = report["threads"].get<int>();
  const DataConfig& data = run.config.data;
  fmt::print("{}: {}\n", text(report, "model"), describe_model(run));
  fmt::print("batch {} x {} in {} micro-batch{}, {}, checkpointing {}\n", data.batch_size,
             data.sequence_length, data.accumulation_steps,
             data.accumulation_steps == 1 ? "" : "es", name_of(run.config.runtime.compute_dtype),
             to_string(run.config.sharding.activation_checkpointing));
  fmt::print("{} on 1 rank, {} x {} thread{}, median of {} step{}\n", text(report, "strategy"),
             text(report, "device"), threads, threads == 1 ? "" : "s", steps,
             steps == 1 ? "" : "s");
  if (run.config.moe.force_balance) {
    fmt::print("  moe.force_balance: tokens take the experts in turn\n");
  }
  for (const char* phase : {"data", "forward", "backward", "optimizer"}) {
    const double ms = number(report, (std::string(phase) + "_ms").c_str());
    fmt::print("  {:<10} {:>9.2f} ms  {:>4.0f}%\n", phase, ms, 100.0 * ms / step_ms);
  }
  fmt::print("  {:<10} {:>9.2f} ms  {:.0f} tokens/s\n", "step", step_ms,
             number(report, "tokens_per_second"));
  fmt::print("  (forward includes the gradients of the head)\n");
  fmt::print("  model      {:>9.1f} GFLOP/s\n", number(report, "model_flops_per_second") * 1e-9);
  fmt::print(
      "  baseline   {:>9.1f} GFLOP/s  plain products of the step's shapes{}, by\n"
      "             {}\n",
      number(report, "baseline_flops_per_second") * 1e-9,
      context().device().is_cpu() ? " in f32" : "", text(report, "baseline"));
  fmt::print("  ratio      {:>9.3f}\n", number(report, "ratio"));
  print_mfu(report);
  print_memory(report);
}

void run(const Options& options, const ResolvedConfig& resolved, Communicator& world) {
  choose_kernels(resolved.config);
  TrainingSession session(resolved, world);
  time_step(session, resolved, 1);  // warm-up: fills the allocator's cache
  std::vector<Timing> timings;
  for (int i = 0; i < options.steps; ++i) timings.push_back(time_step(session, resolved, i + 2));
  std::optional<Sustained> sustained;
  if (options.sustained > 0.0) {
    sustained = sustained_steps(options, session, resolved, options.steps + 2);
  }
  const nlohmann::ordered_json report = report_of(options, resolved, session, timings, sustained);
  print(report, resolved, options.steps);
  if (sustained) print_sustained(report["sustained"]);
  if (counts_host_calls()) {
    fmt::print("  host calls  {} in the last step\n", to_string(timings.back().calls));
  }
  write_report(options.json, report);
}

/// Puts the rates of one rank, and of as many as fill the cores, into a machine file.
void fit(const Options& options, const ResolvedConfig& resolved, const Device& device,
         int threads) {
  const int cores = device.is_cpu() ? available_threads() : 0;
  MachineRates machine = machine_to_fit(options.fit, cores);
  const int each = threads > 0 ? threads : std::max(1, cores);
  std::vector<int> counts = {1};
  if (cores / each > 1) counts.push_back(cores / each);
  for (const int ranks : counts) {
    for (const ComputeRates& rates : measure_compute(
             resolved,
             {.ranks = ranks, .threads = each, .steps = options.steps, .device = device})) {
      replace_rates(machine, rates);
      fmt::print(
          "{} rank{} x {} thread{}, {}: forward {:.1f}, backward {:.1f} GFLOP/s, memory {:.2f} "
          "GB/s\n",
          ranks, ranks == 1 ? "" : "s", each, each == 1 ? "" : "s", name_of(rates.dtype),
          1e-9 * rates.forward, 1e-9 * rates.backward, 1e-9 * rates.memory);
    }
  }
  write_machine(options.fit, machine);
}

void add_options(Command& app, Options& options) {
  add_workload_options(app, options.workload).required();
  app.option("--threads", options.threads, "0: all cores").range(0, 1 << 20);
  app.option("--steps", options.steps, "Timed steps").range(1, 1 << 20);
  app.option(
         "--sustained", options.sustained,
         "Then take steps without a pause for so many seconds, and print the GPU's clock and power")
      .range(0.0, 3600.0);
  app.option("--fit", options.fit,
             "Measure the rates of one rank, and of as many as fill the cores, and write them to "
             "this machine file, for tessera plan --machine");
  app.flag("--print-shape", options.print_shape, "Print the model's sizes as JSON and end");
  app.option("--json", options.json, "Also write the figures to this file");
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app("bench_step",
                       "Times a training step by phase, next to the device's matmul rate");
  app.shows_defaults();
  tessera::add_options(app, options);
  return tessera::run_main(app, count, arguments, [&] {
    const tessera::ResolvedConfig resolved = tessera::resolve(tessera::with_batch_size(
        tessera::workload(options.workload.model, options.workload.overrides), /*ranks=*/1));
    if (options.print_shape) {
      fmt::print("{}\n", tessera::sizes_of(*tessera::make_model(resolved)).dump());
      return 0;
    }
    tessera::check_ranks(resolved, /*ranks=*/1);
    tessera::check_model_keys(resolved);
    const tessera::RuntimeConfig& runtime = resolved.config.runtime;
    const int threads = options.threads > 0 ? options.threads : static_cast<int>(runtime.threads);
    if (!options.fit.empty()) {
      tessera::fit(options, resolved, tessera::first_device(runtime), threads);
      return 0;
    }
    tessera::run_ranks(
        {.device = tessera::first_device(runtime), .threads = threads, .pin = runtime.pin},
        [&](tessera::Communicator& world) {
          tessera::with_training_advice(resolved.config, world,
                                        [&] { tessera::run(options, resolved, world); });
        });
    return 0;
  });
}
