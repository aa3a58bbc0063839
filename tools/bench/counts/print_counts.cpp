#include "tools/bench/counts/print_counts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {
namespace {

using Entries = nlohmann::ordered_json;

double number(const Entries& at, const std::string& key) {
  return at[key].get<double>();
}

/// Megabytes that a kernel reads and writes, of a kind of Traffic with units of `each` bytes.
double megabytes(const Entries& kernel, const std::string& kind, double each) {
  return 1e-6 * each * (number(kernel, "reads." + kind) + number(kernel, "writes." + kind));
}

void print_kernels(const Entries& kernels) {
  fmt::print("{:<10}{:<42}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "phase",
             "kernel", "launches", "asked MB", "sectors", "distinct", "GFLOP", "H200 us", "H100 us",
             "A100 us", "4090 us");
  for (const Entries& kernel : kernels) {
    fmt::print("{:<10}{:<42}{:>8.0f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}",
               kernel["phase"].get<std::string>(), kernel["kernel"].get<std::string>(),
               number(kernel, "launches"), megabytes(kernel, "bytes", 1),
               megabytes(kernel, "sectors", 32), megabytes(kernel, "distinct", 32),
               1e-9 * number(kernel, "matrix_flops"));
    for (const auto& [gpu, time] : kernel["roofline_us"].items()) {
      fmt::print("{:>10.1f}", time.get<double>());
    }
    fmt::print("\n");
  }
}

void print_efficiencies(const Entries& efficiencies) {
  for (const Entries& one : efficiencies) {
    fmt::print("{:<10} {:.3f} of the FLOP/s, {:.2f} of the memory's rate: {}\n",
               one["kind"].get<std::string>(), number(one, "of_flops"), number(one, "of_bytes"),
               one["source"].get<std::string>());
  }
}

void print_layer(const Entries& layer) {
  for (const char* phase : {"forward", "backward"}) {
    const auto of = [&](const char* figure) {
      return number(layer, fmt::format("{}_{}", figure, phase));
    };
    fmt::print(
        "a layer, {:<8} {:>3.0f} launches; own kernels {:.2f} MB ({:.2f} in sectors asked for), "
        "least possible {:.2f} MB: {:.3f}\n",
        phase, of("launches"), 1e-6 * of("own_bytes"), 1e-6 * of("own_sector_bytes"),
        1e-6 * of("least_bytes"), of("own_bytes") / of("least_bytes"));
  }
}

void print_host_calls(const std::string& how, const Entries& calls) {
  fmt::print("host calls, {:<7}", how);
  for (const auto& [kind, count] : calls.items()) {
    fmt::print("{:>7} {}", count.get<std::int64_t>(), kind);
  }
  fmt::print("\n");
}

void print_check(const Entries& check) {
  const auto counters = check["counters"].get<std::size_t>();
  fmt::print("check: {} of {} counters of a larger step are as extrapolated\n",
             counters - check["differ"].size(), counters);
  for (const Entries& entry : check["differ"]) {
    fmt::print("  {} {} {}: extrapolated {:.0f}, counted {:.0f}\n",
               entry["phase"].get<std::string>(), entry["kernel"].get<std::string>(),
               entry["counter"].get<std::string>(), number(entry, "extrapolated"),
               number(entry, "counted"));
  }
}

}  // namespace

void print_counts(const Entries& report) {
  fmt::print("{}: {}; all figures are counted, none is measured\n",
             report["model"].get<std::string>(), report["describes"].get<std::string>());
  print_kernels(report["kernels"]);
  print_layer(report["layer"]);
  print_efficiencies(report["efficiencies"]);
  for (const auto& [gpu, sum] : report["sums"].items()) {
    fmt::print(
        "{:<5} roofline {:>9.2f} ms, expected {:>9.2f} ms, MFU implied {:.3f}, "
        "without the optimizer {:.3f}; with products at the burst rate {:.2f} ms, {:.3f}\n",
        gpu, number(sum, "roofline_ms"), number(sum, "expected_ms"), number(sum, "mfu"),
        number(sum, "mfu_without_optimizer"), number(sum, "burst_ms"), number(sum, "burst_mfu"));
  }
  for (const auto& [how, calls] : report["host_calls"].items()) print_host_calls(how, calls);
  if (report.contains("check")) print_check(report["check"]);
}

}  // namespace tessera
