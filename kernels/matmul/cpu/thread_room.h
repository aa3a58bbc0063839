// The scratch of a thread that multiplies.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cpu/scratch.h"
#include "kernels/matmul/cpu/rounds.h"

namespace tessera::cpu {

inline std::int64_t bytes_of_sum(const ProductList& list) {
  return static_cast<std::int64_t>(size_of(statistics_dtype(list.in)));
}

/// Floats of a thread's panels of a and b and of its sums, each in whole cache lines. A row of sums
/// has those of all sections.
struct ThreadRoom {
  std::int64_t sums_row = 0, panels_a = 0, panels_b = 0, sums = 0;

  ThreadRoom(const Engine& engine, const ProductList& list) {
    const auto floats = [](std::int64_t bytes) {
      return ScratchCutter<float>::aligned(ceil_div(bytes, 4));
    };
    const std::int64_t columns = round_up(list.N, engine.columns);
    sums_row = list.sections * std::min(columns, largest_block(engine, list).columns);
    if (!list.parts.empty() || list.narrows()) {
      const std::int64_t count = std::max<std::int64_t>(1, std::bit_width(list.parts.size()));
      sums = floats(count * engine.rows * sums_row * bytes_of_sum(list));
    }
    if (!has_few_rows(list)) return;
    const std::int64_t line = line_bytes(engine, deepest_round(engine, list));
    const std::int64_t rows = round_up(std::min(list.M, kFewRows), engine.rows);
    if (may_pack_a(engine, list)) panels_a = floats(rows * line);
    panels_b =
        floats(list.sections * std::min(columns, most_columns_of_any_strip(engine, list)) * line);
  }
  /// Enough at every level.
  static std::int64_t largest(const ProductList& list) {
    std::int64_t most = 0;
    for (const Engine* engine : engines_of_all_levels(list.in)) {
      const ThreadRoom room(*engine, list);
      most = std::max(most, room.panels_a + room.panels_b + room.sums);
    }
    return most;
  }
};

}  // namespace tessera::cpu
