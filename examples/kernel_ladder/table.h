// The table that the benchmark of a ladder prints: a line for each rung.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::kernel_ladder {

/// A line of the table.
struct Line {
  std::string name;
  /// Computes once. Empty where this CPU lacks the rung's instructions.
  std::function<void()> run;
  /// The most units of work per second that the machine could do for this rung; 0 if not known.
  double ceiling = 0.0;
  /// The machine's part that the ceiling is for, such as "avx2, 1 thread".
  std::string ceiling_name;
};

/// Times all lines in turn, `runs` times after a warm-up, and prints the medians: the work of one call
/// per second in units of 10^9, its share of the ceiling, and the ratio to the line before.
void print_table(const std::vector<Line>& lines, double work, const std::string& unit, int runs);

}  // namespace tessera::kernel_ladder
