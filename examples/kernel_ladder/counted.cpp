#include "examples/kernel_ladder/counted.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/program/command_line.h"

namespace tessera::kernel_ladder {
namespace {

using emulation::Statistics, emulation::Traffic;

std::uint64_t least(const std::vector<Counted>& rungs, const Traffic Statistics::*traffic) {
  std::uint64_t fewest = ~std::uint64_t{0};
  for (const Counted& rung : rungs) fewest = std::min(fewest, (rung.work.*traffic).distinct);
  return fewest;
}

}  // namespace

void print_counts(const std::vector<Counted>& rungs) {
  const std::uint64_t reads = least(rungs, &Statistics::reads);
  const std::uint64_t writes = least(rungs, &Statistics::writes);
  fmt::print("{:<18} {:>12} {:>9} {:>8} {:>13} {:>9} {:>6}\n", "", "sectors read", "written",
             "of least", "shared memory", "conflicts", "mma");
  for (const auto& [rung, work] : rungs) {
    // ldmatrix loads four matrices.
    fmt::print(
        "{:<18} {:>12} {:>9} {:>8.1f} {:>13} {:>9} {:>6}\n", rung, work.reads.sectors,
        work.writes.sectors, static_cast<double>(work.reads.sectors) / static_cast<double>(reads),
        work.shared_accesses + work.matrix_loads / 4, work.bank_conflicts, work.matrix_products);
  }
  fmt::print("{:<18} {:>12} {:>9}\n", "the least", reads, writes);
  flush_output();
}

void print_counts_of_tiles(const std::vector<Counted>& rungs) {
  constexpr std::uint64_t kSectorsOfKiB = 32, kWarpBytes = 32 * 16;
  const std::uint64_t reads = least(rungs, &Statistics::reads);
  const std::uint64_t writes = least(rungs, &Statistics::writes);
  fmt::print("{:<13} {:>8} {:>8} {:>8} {:>7} {:>7} {:>14} {:>10} {:>6} {:>6}\n", "", "KiB read",
             "of least", "written", "blocks", "copies", "shared memory", "conflicts", "mma",
             "wgmma");
  for (const auto& [rung, work] : rungs) {
    const std::uint64_t by_threads = work.reads.bytes - work.bulk_copy_bytes;
    fmt::print("{:<13} {:>8} {:>8.1f} {:>8} {:>7} {:>7} {:>14} {:>10} {:>6} {:>6}\n", rung,
               work.reads.sectors / kSectorsOfKiB,
               static_cast<double>(work.reads.sectors) / static_cast<double>(reads),
               work.writes.sectors / kSectorsOfKiB, work.blocks,
               by_threads / kWarpBytes + work.tile_copies,
               work.shared_accesses + work.matrix_loads / 4, work.bank_conflicts,
               work.matrix_products, work.warpgroup_products);
  }
  fmt::print("{:<13} {:>8} {:>17}\n", "the least", reads / kSectorsOfKiB, writes / kSectorsOfKiB);
  flush_output();
}

}  // namespace tessera::kernel_ladder
