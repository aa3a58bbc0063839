// The table that the benchmark of a ladder prints: a line for each rung.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/matmul/cpu/isa.h"
#include "runtime/dtype.h"

namespace tessera::kernel_ladder {

/// A line of the table.
struct Line {
  std::string name;
  /// Computes once. Empty where this CPU lacks the rung's instructions.
  std::function<void()> run;
  /// The most units of work per second that the machine could do for this rung; 0 if not known, or
  /// if it is the measured rate of the line that ceiling_name names.
  double ceiling = 0.0;
  /// The machine's part that the ceiling is for, such as "avx2, 1 thread", or a line's name.
  std::string ceiling_name;
};

/// A line with the ceiling of an instruction set, on cores with a clock of `clock` per second.
Line peak_line(const std::string& name, cpu::Isa isa, DType dtype, int threads, double clock,
               std::function<void()> run);

/// Times all lines in turn, `runs` times after a warm-up, and prints the medians: the work of one call
/// per second in units of 10^9, its share of the ceiling, and the ratio to the line before.
void print_table(const std::vector<Line>& lines, double work, const std::string& unit, int runs);

}  // namespace tessera::kernel_ladder
