// bench_matmul: the CPU's matrix products over the shapes of a model's step, next to libraries.
//
//   bench_matmul [--model gpt2] [--tokens 1024] [--threads 2] [--isa avx2] [--dtype f32]
//                [--only "1024 x 768"] [--json F]
//
// A row is one product of the step, in f32 or bf16: our rate, the libraries', and our share of the
// peak. The libraries have the same number of threads, and with --isa the same instructions. OpenBLAS
// multiplies f32 only. The peak is the floating-point operations that the instruction set does per
// cycle, on cores with two units for vectors, times the clock, which a chain of additions measures. The
// libraries take turns, several times, so that a drift of the machine's speed slows all of them. A pause
// comes before each, because their threads go on spinning after a product. Times are medians, from warm
// caches.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "runtime/check.h"
#include "runtime/profiler.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/libraries.h"
#include "tools/bench/onednn.h"
#include "tools/bench/report.h"
#include "tools/measure/matmul_rate.h"
#include "tools/measure/median.h"
#include "tools/measure/peak.h"
#include "tools/program/command_line.h"

namespace tessera {
namespace {

struct Options {
  std::string model = "gpt2", isa, dtype, only, json;
  std::int64_t tokens = 1024;
  int threads = 0, turns = 3, runs = 3;
};

/// A turn of a library: adds the seconds of its products, after one that warms the caches.
void take_turn(const std::function<void()>& multiply, int runs, std::vector<double>& seconds) {
  if (!multiply) return;
  if (context().threads().size() > 1) wait_for_openblas_threads();
  multiply();
  for (int i = 0; i < runs; ++i) {
    const TimePoint begin = TimePoint::now();
    multiply();
    seconds.push_back(1e-3 * milliseconds_between(begin, TimePoint::now()));
  }
}

std::function<void()> by_openblas(const MatmulShape& shape, const MatmulOperands& operands) {
  if (operands.a.dtype() != DType::f32) return {};
  return [=] {
    const OpenBlasThreads own_threading(context().threads().size());
    openblas_product(operands, shape);
  };
}

constexpr std::array kLibraries = {"openblas", "onednn"};

/// Seconds of one product by ours and by the libraries; 0: not measured.
struct Seconds {
  double ours = 0.0;
  std::array<double, kLibraries.size()> libraries = {};
};

Seconds measure(const MatmulShape& s, DType dtype, const Options& options) {
  // Gradients of weights are f32.
  const MatmulOperands operands =
      operands_of(s, dtype, s.transpose_a == Transpose::yes ? DType::f32 : dtype);
  const auto& [a, b, c] = operands;
  const std::array<std::function<void()>, 1 + kLibraries.size()> products = {
      [&] { matmul(operands.c, operands.a, operands.b, s.transpose_a, s.transpose_b); },
      by_openblas(s, operands), onednn_product(s, a, b, c)};
  std::array<std::vector<double>, products.size()> seconds;
  for (int turn = 0; turn < options.turns; ++turn) {
    for (std::size_t i = 0; i < products.size(); ++i) {
      take_turn(products[i], options.runs, seconds[i]);
    }
  }
  Seconds medians = {.ours = median(seconds[0])};
  for (std::size_t i = 0; i < kLibraries.size(); ++i) {
    if (products[i + 1]) medians.libraries[i] = median(seconds[i + 1]);
  }
  return medians;
}

/// A column of the table; `-` where there is no value.
std::string cell(double value, int digits) {
  return value > 0.0 ? fmt::format("{:.{}f}", value, digits) : "-";
}

void print_header() {
  fmt::print("{:<30} {:<5} {:>9}", "m x n x k", "dtype", "ours");
  for (int turn = 0; turn < 2; ++turn) {
    for (const char* library : kLibraries) fmt::print(" {:>9}", library);
  }
  fmt::print(" {:>6}\n", "peak");
}

nlohmann::ordered_json print_row(const std::string& name, DType dtype, double flops,
                                 const Seconds& t, double peak) {
  nlohmann::ordered_json row = {{"product", name},
                                {"dtype", std::string(name_of(dtype))},
                                {"flops", flops},
                                {"seconds", t.ours},
                                {"peak", peak}};
  const auto rate = [&](double seconds) { return seconds > 0.0 ? 1e-9 * flops / seconds : 0.0; };
  std::string rates, ratios;
  for (std::size_t i = 0; i < kLibraries.size(); ++i) {
    row[kLibraries[i]] = t.libraries[i];
    rates += fmt::format(" {:>9}", cell(rate(t.libraries[i]), 1));
    ratios += fmt::format(" {:>9}", cell(t.libraries[i] / t.ours, 2));
  }
  const double share = peak > 0.0 ? flops / t.ours / peak : 0.0;
  fmt::print("{:<30} {:<5} {:>9}{}{} {:>6}\n", name, name_of(dtype), cell(rate(t.ours), 1), rates,
             ratios, cell(share, 2));
  flush_output();
  return row;
}

void run(const Options& options) {
  if (!options.isa.empty()) matmul_options().isa = enum_from_name<cpu::Isa>(options.isa);
  const cpu::Isa isa = matmul_options().isa;
  const double cycles = clock_rate() * context().threads().size();
  nlohmann::ordered_json report = new_report("bench_matmul");
  report["isa"] = std::string(enum_name(isa));
  report["products"] = nlohmann::ordered_json::array();
  fmt::print(
      "{} tokens of {}, {} threads, {}; GFLOP/s, ours over the libraries', our share of the "
      "peak\n",
      options.tokens, options.model, context().threads().size(), enum_name(isa));
  fmt::print("{}\n", describe_openblas(isa));
  if (const std::string onednn = describe_onednn(isa); !onednn.empty()) fmt::print("{}\n", onednn);
  print_header();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (!options.dtype.empty() && dtype != dtype_from_name(options.dtype)) continue;
    const double peak = operations_per_cycle(isa, dtype) * cycles;
    Seconds sum;
    double flops = 0.0;
    for (const MatmulShape& s : training_matmuls(model_shape(options.model), options.tokens)) {
      const std::string name = fmt::format("{} x {} x {}{}{}", s.m, s.n, s.k,
                                           s.transpose_a == Transpose::yes ? " ta" : "",
                                           s.transpose_b == Transpose::yes ? " tb" : "");
      if (name.find(options.only) == std::string::npos) continue;
      const Seconds t = measure(s, dtype, options);
      const auto count = static_cast<double>(s.count);
      report["products"].push_back(print_row(name, dtype, s.flops() / count, t, peak));
      flops += s.flops();
      sum.ours += count * t.ours;
      for (std::size_t i = 0; i < kLibraries.size(); ++i) {
        sum.libraries[i] += count * t.libraries[i];
      }
    }
    check(flops > 0.0, "no product's name contains '{}'", options.only);
    report["products"].push_back(
        print_row(options.only.empty() ? "the step" : "together", dtype, flops, sum, peak));
  }
  write_report(options.json, report);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app("bench_matmul",
                       "Times the CPU's matrix products over a step's shapes, next to libraries");
  app.shows_defaults();
  app.option("--model", options.model, "The model with the shapes: a preset, or tiny");
  app.option("--tokens", options.tokens, "Tokens of a step").positive();
  app.option("--threads", options.threads, "0: all cores").not_negative();
  app.option("--runs", options.runs, "Timed runs per turn").positive();
  app.option("--turns", options.turns, "Turns of each library").positive();
  app.option("--dtype", options.dtype, "f32 or bf16; by default both").one_of({"f32", "bf16"});
  app.option("--only", options.only, "Only products whose name contains this");
  app.option("--isa", options.isa,
             "portable, avx2, avx512, avx512_bf16 or amx; by default the CPU's best");
  app.option("--json", options.json, "Also write the rows to this file");
  return tessera::run_main(app, count, arguments, [&] {
    if (!options.isa.empty()) {
      tessera::limit_libraries(tessera::enum_from_name<tessera::cpu::Isa>(options.isa));
    }
    tessera::run_ranks({.device = {tessera::DeviceType::cpu, 0}, .threads = options.threads},
                       [&](tessera::Communicator&) { tessera::run(options); });
    return 0;
  });
}
