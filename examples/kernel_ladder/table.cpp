#include "examples/kernel_ladder/table.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "examples/kernel_ladder/rung.h"
#include "runtime/context.h"
#include "runtime/profiler.h"
#include "tools/measure/median.h"
#include "tools/measure/peak.h"
#include "tools/program/command_line.h"

namespace tessera::kernel_ladder {
namespace {

double seconds_of(const std::function<void()>& run) {
  // OpenBLAS's threads spin for some 26 ms after their last product.
  if (context().threads().size() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const TimePoint begin = TimePoint::now();
  run();
  return 1e-3 * milliseconds_between(begin, TimePoint::now());
}

/// Each line's units of work per second; 0 for lines that do not run.
std::vector<double> rates_of(const std::vector<Line>& lines, double work, int runs) {
  std::vector<std::vector<double>> seconds(lines.size());
  for (int round = -1; round < runs; ++round) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!lines[i].run) continue;
      const double time = seconds_of(lines[i].run);
      if (round >= 0) seconds[i].push_back(time);
    }
  }
  std::vector<double> rates;
  for (const auto& of_line : seconds) {
    rates.push_back(of_line.empty() ? 0.0 : work / median(of_line));
  }
  return rates;
}

double ceiling_of(const Line& line, const std::vector<Line>& lines,
                  const std::vector<double>& rates) {
  if (line.ceiling > 0.0) return line.ceiling;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].name == line.ceiling_name) return rates[i];
  }
  return 0.0;
}

}  // namespace

Line peak_line(const std::string& name, cpu::Isa isa, DType dtype, int threads, double clock,
               std::function<void()> run) {
  return {.name = name,
          .run = has(isa) ? std::move(run) : nullptr,
          .ceiling = operations_per_cycle(isa, dtype) * clock * threads,
          .ceiling_name =
              fmt::format("{}, {} thread{}", enum_name(isa), threads, threads == 1 ? "" : "s")};
}

void print_table(const std::vector<Line>& lines, double work, const std::string& unit, int runs) {
  const std::vector<double> rates = rates_of(lines, work, runs);
  fmt::print("{:<16} {:>9} {:>8} {:>9}   {}\n", "", unit, "share", "ratio", "share of");
  double last = 0.0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    if (!line.run) {
      fmt::print("{:<16} skipped: this CPU has no {}\n", line.name, line.ceiling_name);
      continue;
    }
    const double ceiling = ceiling_of(line, lines, rates);
    fmt::print("{:<16} {:>9.{}f} {:>8} {:>9}   {}\n", line.name, 1e-9 * rates[i],
               rates[i] < 1e10 ? 2 : 1,
               ceiling > 0.0 ? fmt::format("{:.1f} %", 100.0 * rates[i] / ceiling) : "-",
               last > 0.0 ? fmt::format("{:.2f}", rates[i] / last) : "", line.ceiling_name);
    last = rates[i];
  }
  flush_output();
}

}  // namespace tessera::kernel_ladder
