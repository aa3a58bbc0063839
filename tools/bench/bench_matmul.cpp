// bench_matmul: the CPU's matrix products over the shapes of a model's step, next to libraries.
//
//   bench_matmul [--model gpt2] [--tokens 1024] [--threads 2] [--isa avx2] [--json F]
//
// A row is one product of the step, in f32 or bf16: our rate, OpenBLAS's (f32 only) and oneDNN's
// where the build has it, and our share of the peak. The libraries have the same number of threads
// and, with --isa, the same instructions. The peak is the floating-point operations that the
// instruction set does per cycle, on cores with two units for vectors, times the clock, which a
// chain of additions measures. The three take turns with a pause, because OpenBLAS's threads go on
// spinning after a product. Times are medians, from warm caches.
#include <cblas.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "runtime/check.h"
#include "runtime/profiler.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/median.h"
#include "tools/bench/onednn.h"
#include "tools/bench/report.h"
#include "tools/measure/matmul_rate.h"
#include "tools/measure/noise.h"
#include "tools/measure/peak.h"
#include "tools/program/command_line.h"

namespace tessera {
namespace {

struct Options {
  std::string model = "gpt2", isa, json;
  std::int64_t tokens = 1024;
  int threads = 0, runs = 7;
};

/// The environment that gives OpenBLAS and oneDNN our threads and instructions.
std::map<std::string, std::string> settings_of_libraries(const Options& options) {
  std::map<std::string, std::string> settings;
  if (options.threads > 0) settings["OMP_NUM_THREADS"] = std::to_string(options.threads);
  if (options.isa == "avx2") {
    settings["OPENBLAS_CORETYPE"] = "Haswell";
    settings["ONEDNN_MAX_CPU_ISA"] = "AVX2";
  } else if (options.isa == "avx512" || options.isa == "avx512_bf16") {
    settings["OPENBLAS_CORETYPE"] = "SkylakeX";
    settings["ONEDNN_MAX_CPU_ISA"] = options.isa == "avx512" ? "AVX512_CORE" : "AVX512_CORE_BF16";
  }
  return settings;
}

/// The libraries read their settings when they are loaded: for new ones the program starts again.
void apply_settings(const std::map<std::string, std::string>& settings, char** arguments) {
  bool changed = false;
  for (const auto& [name, value] : settings) {
    const char* const now = std::getenv(name.c_str());
    changed = changed || now == nullptr || value != now;
    check(::setenv(name.c_str(), value.c_str(), 1) == 0, "cannot set {} to {}", name, value);
  }
  if (!changed) return;
  ::execv("/proc/self/exe", arguments);
  fail("cannot start the program again with other settings of OpenBLAS and oneDNN: {}",
       std::strerror(errno));
}

/// The median of a product's seconds; 0 without a product.
double seconds_of(int runs, const std::function<void()>& multiply) {
  if (!multiply) return 0.0;
  if (context().threads().size() > 1) wait_for_openblas_threads();
  multiply();
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    const TimePoint begin = TimePoint::now();
    multiply();
    seconds.push_back(1e-3 * milliseconds_between(begin, TimePoint::now()));
  }
  return median(seconds);
}

std::function<void()> openblas_product(const MatmulShape& s, const Tensor& a, const Tensor& b,
                                       const Tensor& c, int threads) {
  if (a.dtype() != DType::f32) return {};
  const auto layout = [](Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; };
  const auto size = [](std::int64_t extent) { return static_cast<int>(extent); };
  return [=] {
    openblas_set_num_threads(threads);
    cblas_sgemm(CblasRowMajor, layout(s.transpose_a), layout(s.transpose_b), size(s.m), size(s.n),
                size(s.k), 1.0f, a.data<float>(), size(a.size(1)), b.data<float>(), size(b.size(1)),
                0.0f, c.data<float>(), size(s.n));
    openblas_set_num_threads(1);
  };
}

/// Seconds of one product by ours, OpenBLAS and oneDNN.
struct Seconds {
  double ours, openblas, onednn;
};

Seconds measure(const MatmulShape& s, DType dtype, const Options& options) {
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  const Tensor a = noise(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, dtype);
  const Tensor b = noise(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, dtype);
  // Gradients of weights are f32.
  const Tensor c = Tensor::zeros({s.m, s.n}, ta ? DType::f32 : dtype);
  const int threads = context().threads().size();
  return {seconds_of(options.runs, [&] { matmul(c, a, b, s.transpose_a, s.transpose_b); }),
          seconds_of(options.runs, openblas_product(s, a, b, c, threads)),
          seconds_of(options.runs, onednn_product(s, a, b, c))};
}

std::string rate(double flops, double seconds) {
  return seconds > 0.0 ? fmt::format("{:.1f}", 1e-9 * flops / seconds) : "-";
}

nlohmann::ordered_json print_row(const std::string& name, DType dtype, double flops,
                                 const Seconds& t, double peak) {
  const auto ratio = [&](double other) {
    return other > 0.0 ? fmt::format("{:.2f}", other / t.ours) : "-";
  };
  const std::string share = peak > 0.0 ? fmt::format("{:.2f}", flops / t.ours / peak) : "-";
  fmt::print("{:<30} {:<5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}\n", name, name_of(dtype),
             rate(flops, t.ours), rate(flops, t.openblas), rate(flops, t.onednn), ratio(t.openblas),
             ratio(t.onednn), share);
  flush_output();
  return {{"product", name},
          {"dtype", std::string(name_of(dtype))},
          {"flops", flops},
          {"seconds", t.ours},
          {"openblas", t.openblas},
          {"onednn", t.onednn},
          {"peak", peak}};
}

void run(const Options& options) {
  if (!options.isa.empty()) matmul_options().isa = enum_from_name<cpu::Isa>(options.isa);
  const cpu::Isa isa = matmul_options().isa;
  const double cycles = clock_rate() * context().threads().size();
  nlohmann::ordered_json report = new_report("bench_matmul");
  report["isa"] = std::string(enum_name(isa));
  report["products"] = nlohmann::ordered_json::array();
  fmt::print(
      "{} tokens of {}, {} threads, {}; GFLOP/s, ratios to OpenBLAS and oneDNN, peak's share\n",
      options.tokens, options.model, context().threads().size(), enum_name(isa));
  fmt::print("{:<30} {:<5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}\n", "m x n x k", "dtype", "ours",
             "openblas", "onednn", "openblas", "onednn", "peak");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double peak = operations_per_cycle(isa, dtype) * cycles;
    Seconds sum{};
    double flops = 0.0;
    for (const MatmulShape& s : training_matmuls(model_shape(options.model), options.tokens)) {
      const Seconds t = measure(s, dtype, options);
      const auto count = static_cast<double>(s.count);
      const std::string name = fmt::format("{} x {} x {}{}{}", s.m, s.n, s.k,
                                           s.transpose_a == Transpose::yes ? " ta" : "",
                                           s.transpose_b == Transpose::yes ? " tb" : "");
      report["products"].push_back(print_row(name, dtype, s.flops() / count, t, peak));
      sum.ours += count * t.ours, sum.openblas += count * t.openblas;
      sum.onednn += count * t.onednn, flops += s.flops();
    }
    report["products"].push_back(print_row("the step", dtype, flops, sum, peak));
  }
  write_report(options.json, report);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  CLI::App app("Times the CPU's matrix products over a step's shapes, next to libraries",
               "bench_matmul");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", options.model, "The model with the shapes: a preset, or tiny");
  app.add_option("--tokens", options.tokens, "Tokens of a step")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::NonNegativeNumber);
  app.add_option("--runs", options.runs, "Timed runs per product")->check(CLI::PositiveNumber);
  app.add_option("--isa", options.isa,
                 "portable, avx2, avx512, avx512_bf16 or amx; by default the CPU's best");
  app.add_option("--json", options.json, "Also write the rows to this file");
  return tessera::run_main(app, count, arguments, [&] {
    tessera::apply_settings(tessera::settings_of_libraries(options), arguments);
    tessera::run_ranks({.device = {tessera::DeviceType::cpu, 0}, .threads = options.threads},
                       [&](tessera::Communicator&) { tessera::run(options); });
    return 0;
  });
}
