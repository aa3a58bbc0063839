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
// each in a row of its own. The baseline is timed again next to every case, so that a drifting clock
// slows both. Caches are flushed before each run. Times are the median of the runs. A ratio is the
// kernel's rate over the baseline's: 1 is equally fast.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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

/// Bytes per second that a copy reads and writes.
double copy_rate(const Stopwatch& stopwatch) {
  const std::int64_t bytes = stopwatch.flushed_bytes();
  const Tensor from = Tensor::zeros({bytes}, DType::u8), to = Tensor::empty({bytes}, DType::u8);
  const double ms = stopwatch.median_ms([&] { to.copy_from(from); });
  return 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
}

/// FLOP/s of plain products of these shapes by matmul.
double product_rate(const std::vector<MatmulShape>& shapes, DType dtype,
                    const Stopwatch& stopwatch) {
  double flops = 0.0, ms = 0.0;
  for (const MatmulShape& m : shapes) {
    const MatmulOperands o = operands_of(m, dtype, dtype);
    const auto count = static_cast<double>(m.count);
    ms += count * stopwatch.median_ms([&] { matmul(o.c, o.a, o.b, m.transpose_a, m.transpose_b); });
    flops += m.flops();
  }
  return flops / (ms * 1e-3);
}

double median_ms(const Preparation& prepare, const Stopwatch& stopwatch) {
  const auto run = prepare();
  return stopwatch.median_ms(run);
}

/// Milliseconds of the same calls by cuDNN.
double cudnn_ms(const KernelCase& kernel, CudnnOrder order, const Stopwatch& stopwatch) {
  set_attention_backend(AttentionBackend::cudnn);
  set_cudnn_order(order);
  const double ms = median_ms(kernel.prepare, stopwatch);
  set_cudnn_order(CudnnOrder::same);
  set_attention_backend(AttentionBackend::tessera);
  return ms;
}

struct Measured {
  double ms, rate, baseline_rate;  // bytes or operations per second
  const char* baseline;
};

Measured measure(const KernelCase& kernel, const Stopwatch& stopwatch) {
  const CategoryScope category(Category::other);
  const double ms = median_ms(kernel.prepare, stopwatch);
  const bool on_cpu = context().device().is_cpu();
  Measured result = {};
  const auto rate = [](double work, double time) { return work / (time * 1e-3); };
  switch (kernel.baseline) {
    case Baseline::copy:
      result = {ms, rate(kernel.bytes, ms), copy_rate(stopwatch), "copy"};
      break;
    case Baseline::matmul:
      result = {ms, rate(kernel.flops, ms),
                on_cpu ? matmul_rate(kernel.matmuls, kernel.dtype, context().threads().size())
                       : product_rate(kernel.matmuls, kernel.dtype, stopwatch),
                on_cpu ? "openblas" : "cublaslt"};
      break;
    case Baseline::own_matmul:
      result = {ms, rate(kernel.flops, ms), product_rate(kernel.matmuls, kernel.dtype, stopwatch),
                on_cpu ? "matmul" : "cublaslt"};
      break;
    case Baseline::cudnn:
      result = {ms, rate(kernel.flops, ms),
                rate(kernel.flops, cudnn_ms(kernel, CudnnOrder::same, stopwatch)), "cudnn"};
      break;
    case Baseline::cudnn_any_order:
      result = {ms, rate(kernel.flops, ms),
                rate(kernel.flops, cudnn_ms(kernel, CudnnOrder::any, stopwatch)),
                "cudnn any order"};
      break;
    case Baseline::apart:
      result = {ms, rate(kernel.flops, ms),
                rate(kernel.flops, median_ms(kernel.prepare_apart, stopwatch)), "apart"};
      break;
  }
  context().allocator().trim();
  return result;
}

nlohmann::ordered_json row_of(const KernelCase& kernel, const Measured& measured) {
  return {{"op", kernel.op},
          {"shape", kernel.shape},
          {"dtype", std::string(name_of(kernel.dtype))},
          {"time_ms", measured.ms},
          {"bytes", kernel.bytes},
          {"flops", kernel.flops},
          {"rate", measured.rate},
          {"baseline", measured.baseline},
          {"baseline_rate", measured.baseline_rate},
          {"ratio", measured.rate / measured.baseline_rate}};
}

void print_row(const KernelCase& kernel, const Measured& measured) {
  const bool copies = kernel.baseline == Baseline::copy;
  const bool giga = copies || context().device().is_cpu();  // a CPU reaches no TFLOP/s
  const double unit = giga ? 1e9 : 1e12;
  fmt::print("{:<25} {:<34} {:<5} {:>9.4f} {:>9.2f} {:>9.2f} {:<7} {:<15} {:>6.2f}\n", kernel.op,
             kernel.shape, name_of(kernel.dtype), measured.ms, measured.rate / unit,
             measured.baseline_rate / unit, copies ? "GB/s" : (giga ? "GFLOP/s" : "TFLOP/s"),
             measured.baseline, measured.rate / measured.baseline_rate);
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
  fmt::print("{:<25} {:<34} {:<5} {:>9} {:>9} {:>9} {:<7} {:<15} {:>6}\n", "op", "shape", "dtype",
             "ms", "rate", "baseline", "", "of", "ratio");
  nlohmann::ordered_json report = new_report("bench_kernels");
  report["runs"] = options.runs;
  report["models"] = options.models;
  report["kernels"] = nlohmann::ordered_json::array();
  for (const KernelCase& kernel : cases) {
    const Measured measured = measure(kernel, stopwatch);
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
