// bench_kernels: every kernel over real models' shapes, compared with a baseline.
//
//   bench_kernels [--device cuda] [--models gpt2,llama3-8b] [--op rms_norm] [--dtype bf16]
//                 [--json F]
//
// A kernel bound by memory is compared with a copy on the same device that is larger than every
// cache: the bytes that the kernel must move over its time, against the bytes that the copy reads
// and writes over its time. A kernel bound by arithmetic is compared with plain matrix products
// (cuBLASLt or OpenBLAS, with its own threading) of its shapes, and grouped products with one product
// by `matmul`. bench_matmul compares the CPU's products with more libraries and with the peak.
// Attention is compared with cuDNN's in builds that have it, its backward pass with cuDNN's
// deterministic and its faster one. Attention in packed documents is compared with the same documents,
// each in a row of its own. The kernel and its baseline take turns, run by run, so that a clock that
// falls slows both. Caches are flushed before each run, by reads. Times are quartiles of the runs. A ratio
// is the kernel's rate over the baseline's, by the medians: 1 is equally fast.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/backend.h"
#include "kernels/matmul/op.h"
#include "runtime/check.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/command_line.h"
#include "tools/bench/libraries.h"
#include "tools/bench/report.h"
#include "tools/bench/stopwatch.h"
#include "tools/measure/matmul_rate.h"
#include "tools/measure/noise.h"
#include "tools/program/command_line.h"

namespace tessera {
namespace {

struct Options {
  std::string device = "auto";
  std::string op;
  std::string dtype;  // empty: bf16 on a GPU, f32 on the CPU
  std::string json;
  std::vector<std::string> models = {"gpt2", "gpt2-xl", "llama3-8b"};
  std::int64_t rows = 8192;
  std::int64_t sequence = 0;  // 0: the model's
  int threads = 0;
  int runs = 20;
  std::int64_t flushed_mib = 0;
};

/// Calls whose times add up, each so many times, and the bytes or operations of them all.
struct Work {
  std::vector<std::function<void()>> calls;
  std::vector<double> counts;
  double amount = 0.0;
};

struct Opponent {
  const char* name;
  Work work;
};

Work copy_of(std::int64_t bytes) {
  const Tensor from = Tensor::zeros({bytes}, DType::u8), to = Tensor::empty({bytes}, DType::u8);
  return {{[=] { to.copy_from(from); }}, {1.0}, 2.0 * static_cast<double>(bytes)};
}

/// Plain products of these shapes.
Work products_of(const std::vector<MatmulShape>& shapes, DType dtype,
                 void (*multiply)(const MatmulOperands&, const MatmulShape&)) {
  Work work;
  for (const MatmulShape& shape : shapes) {
    const MatmulOperands operands = operands_of(shape, dtype, dtype);
    work.calls.emplace_back([=] { multiply(operands, shape); });
    work.counts.push_back(static_cast<double>(shape.count));
    work.amount += shape.flops();
  }
  return work;
}

void own_product(const MatmulOperands& operands, const MatmulShape& shape) {
  const auto& [a, b, c] = operands;
  matmul(c, a, b, shape.transpose_a, shape.transpose_b);
}

Work cudnn_of(const KernelCase& kernel, CudnnOrder order) {
  const auto by_cudnn = [=, run = kernel.prepare()] {
    set_attention_backend(AttentionBackend::cudnn);
    set_cudnn_order(order);
    run();
    set_cudnn_order(CudnnOrder::same);
    set_attention_backend(AttentionBackend::tessera);
  };
  return {{by_cudnn}, {1.0}, kernel.flops};
}

Opponent opponent_of(const KernelCase& kernel, const Stopwatch& stopwatch) {
  const bool on_cpu = context().device().is_cpu();
  const auto own = [&] { return products_of(kernel.matmuls, kernel.dtype, own_product); };
  switch (kernel.baseline) {
    case Baseline::copy:
      return {"copy", copy_of(stopwatch.flushed_bytes())};
    case Baseline::matmul:
      if (on_cpu) return {"openblas", products_of(kernel.matmuls, DType::f32, openblas_product)};
      return {"cublaslt", own()};
    case Baseline::own_matmul:
      return {on_cpu ? "matmul" : "cublaslt", own()};
    case Baseline::cudnn:
      return {"cudnn", cudnn_of(kernel, CudnnOrder::same)};
    case Baseline::cudnn_any_order:
      return {"cudnn any order", cudnn_of(kernel, CudnnOrder::any)};
    case Baseline::apart:
      return {"apart", {{kernel.prepare_apart()}, {1.0}, kernel.flops}};
  }
  return {};
}

struct Measured {
  Quartiles ms, baseline_ms;
  double rate, baseline_rate;  // bytes or operations per second, by the medians
  const char* baseline;
};

/// The kernel and its baseline, in turns.
Measured measure(const KernelCase& kernel, const Stopwatch& stopwatch) {
  const CategoryScope category(Category::other);
  const bool by_openblas = context().device().is_cpu() && kernel.baseline == Baseline::matmul;
  std::optional<OpenBlasThreads> threads;
  if (by_openblas) threads.emplace(context().threads().size());
  const Opponent opponent = opponent_of(kernel, stopwatch);
  std::vector<std::function<void()>> works = {kernel.prepare()};
  works.insert(works.end(), opponent.work.calls.begin(), opponent.work.calls.end());
  if (by_openblas) works.emplace_back(wait_for_openblas_threads);
  const std::vector<Quartiles> times = stopwatch.in_turns(works);
  Measured result{.ms = times[0], .baseline = opponent.name};
  for (std::size_t i = 0; i < opponent.work.counts.size(); ++i) {
    const double count = opponent.work.counts[i];
    result.baseline_ms.first += count * times[i + 1].first;
    result.baseline_ms.median += count * times[i + 1].median;
    result.baseline_ms.third += count * times[i + 1].third;
  }
  const double amount = kernel.baseline == Baseline::copy ? kernel.bytes : kernel.flops;
  result.rate = amount / (result.ms.median * 1e-3);
  result.baseline_rate = opponent.work.amount / (result.baseline_ms.median * 1e-3);
  return result;
}

nlohmann::ordered_json entries_of(const Quartiles& quartiles) {
  return {quartiles.first, quartiles.median, quartiles.third};
}

nlohmann::ordered_json row_of(const KernelCase& kernel, const Measured& measured) {
  return {{"op", kernel.op},
          {"shape", kernel.shape},
          {"dtype", std::string(name_of(kernel.dtype))},
          {"time_ms", measured.ms.median},
          {"time_quartiles_ms", entries_of(measured.ms)},
          {"bytes", kernel.bytes},
          {"flops", kernel.flops},
          {"rate", measured.rate},
          {"baseline", measured.baseline},
          {"baseline_quartiles_ms", entries_of(measured.baseline_ms)},
          {"baseline_rate", measured.baseline_rate},
          {"ratio", measured.rate / measured.baseline_rate}};
}

/// "0.4281 to 0.4330": the first and the third quartile.
std::string range_of(const Quartiles& quartiles) {
  return fmt::format("{:.4f} to {:.4f}", quartiles.first, quartiles.third);
}

void print_row(const KernelCase& kernel, const Measured& measured) {
  const bool copies = kernel.baseline == Baseline::copy;
  const bool giga = copies || context().device().is_cpu();  // a CPU reaches no TFLOP/s
  const double unit = giga ? 1e9 : 1e12;
  fmt::print("{:<25} {:<34} {:<5} {:>9.4f} {:>20} {:>9.2f} {:>9.2f} {:<7} {:<15} {:>20} {:>6.2f}\n",
             kernel.op, kernel.shape, name_of(kernel.dtype), measured.ms.median,
             range_of(measured.ms), measured.rate / unit, measured.baseline_rate / unit,
             copies ? "GB/s" : (giga ? "GFLOP/s" : "TFLOP/s"), measured.baseline,
             range_of(measured.baseline_ms), measured.rate / measured.baseline_rate);
  flush_output();
}

/// The cases that the options select. Raises Error if there are none.
std::vector<KernelCase> chosen_cases(const Options& options, DType dtype) {
  std::vector<KernelCase> chosen;
  for (const std::string& name : options.models) {
    TransformerShape model = model_shape(name);
    if (options.sequence > 0) model.context = options.sequence;
    for (KernelCase& kernel : kernel_cases(model, options.rows, dtype)) {
      if (kernel.op.find(options.op) != std::string::npos) chosen.push_back(std::move(kernel));
    }
  }
  check(!chosen.empty(), "there is no kernel whose name contains '{}'", options.op);
  return chosen;
}

void run(const Options& options) {
  const bool cpu = context().device().is_cpu();
  const DType dtype =
      options.dtype.empty() ? (cpu ? DType::f32 : DType::bf16) : dtype_from_name(options.dtype);
  const std::vector<KernelCase> cases = chosen_cases(options, dtype);
  const Stopwatch stopwatch(options.runs, options.flushed_mib << 20);
  fmt::print("{}, median of {} runs from cold caches\n", to_string(context().device()),
             options.runs);
  if (cpu) fmt::print("{}\n", describe_openblas(cpu::best_isa()));
  fmt::print("{:<25} {:<34} {:<5} {:>9} {:>20} {:>9} {:>9} {:<7} {:<15} {:>20} {:>6}\n", "op",
             "shape", "dtype", "ms", "quartiles", "rate", "baseline", "", "of", "quartiles",
             "ratio");
  nlohmann::ordered_json report = new_report("bench_kernels");
  report["runs"] = options.runs;
  report["models"] = options.models;
  report["kernels"] = nlohmann::ordered_json::array();
  for (const KernelCase& kernel : cases) {
    const Measured measured = measure(kernel, stopwatch);
    context().allocator().trim();
    print_row(kernel, measured);
    report["kernels"].push_back(row_of(kernel, measured));
  }
  const auto is_product = [](const KernelCase& k) { return k.baseline == Baseline::matmul; };
  if (cpu && std::ranges::any_of(cases, is_product)) {
    fmt::print("bench_matmul: a step's products next to OpenBLAS, oneDNN and the peak\n");
  }
  write_report(options.json, report);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app(
      "bench_kernels",
      "Times every kernel over real models' shapes, next to a copy or plain matrix products");
  app.shows_defaults();
  app.option("--device", options.device, "auto, cpu, cuda or cuda:1");
  app.option("--op", options.op, "Only operations whose name contains this");
  app.option("--dtype", options.dtype, "f32, bf16 or f16; by default bf16 on a GPU, else f32");
  app.option("--models", options.models, "Models with the shapes: presets, or tiny")
      .separated_by_commas();
  app.option("--tokens", options.rows, "Tokens: rows of activations").positive();
  app.option("--sequence", options.sequence, "Tokens per sequence, for attention and rope")
      .positive();
  app.option("--threads", options.threads, "0: all cores").not_negative();
  app.option("--runs", options.runs, "Timed runs per kernel").positive();
  app.option("--flush-mib", options.flushed_mib,
             "Size of the flush before each run and of the copy; 0: larger than every cache")
      .not_negative();
  app.option("--json", options.json, "Also write the rows to this file");
  return tessera::run_main(app, count, arguments, [&] {
    tessera::run_ranks(
        {.device = tessera::device_of_option(options.device), .threads = options.threads},
        [&](tessera::Communicator&) { tessera::run(options); });
    return 0;
  });
}
