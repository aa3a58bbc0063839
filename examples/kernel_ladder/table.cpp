#include "examples/kernel_ladder/table.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "runtime/context.h"
#include "runtime/profiler.h"
#include "tools/bench/median.h"
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

}  // namespace

void print_table(const std::vector<Line>& lines, double work, const std::string& unit, int runs) {
  std::vector<std::vector<double>> seconds(lines.size());
  for (int round = -1; round < runs; ++round) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!lines[i].run) continue;
      const double time = seconds_of(lines[i].run);
      if (round >= 0) seconds[i].push_back(time);
    }
  }
  fmt::print("{:<16} {:>9} {:>8} {:>9}   {}\n", "", unit, "share", "ratio", "share of");
  double last = 0.0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    if (!line.run) {
      fmt::print("{:<16} skipped: this CPU has no {}\n", line.name, line.ceiling_name);
      continue;
    }
    const double rate = 1e-9 * work / median(seconds[i]);
    const bool known = line.ceiling > 0.0;
    fmt::print("{:<16} {:>9.1f} {:>8} {:>9}   {}\n", line.name, rate,
               known ? fmt::format("{:.1f} %", 1e11 * rate / line.ceiling) : "-",
               last > 0.0 ? fmt::format("{:.2f}", rate / last) : "", line.ceiling_name);
    last = rate;
  }
  flush_output();
}

}  // namespace tessera::kernel_ladder
