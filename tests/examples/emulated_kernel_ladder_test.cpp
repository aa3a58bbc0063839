// The rungs for a GPU touch as much of its memory as the book says.
#include <catch2/catch.hpp>

#include "examples/kernel_ladder/attention/gpu_rungs.h"
#include "examples/kernel_ladder/attention/operands.h"
#include "examples/kernel_ladder/counted.h"
#include "examples/kernel_ladder/norm/gpu_rungs.h"
#include "examples/kernel_ladder/norm/operands.h"
#include "examples/kernel_ladder/softmax/gpu_rungs.h"
#include "examples/kernel_ladder/softmax/operands.h"
#include "tests/support/rank.h"

namespace tessera::kernel_ladder {
namespace {

// Rows as GPT-2's are. A sector has 8 floats, a warp 32 lanes.
constexpr std::int64_t kN = 256, kC = 768, kElements = kN * kC;

// Heads of 64 channels: two blocks of 64 queries, four tiles of 32 keys.
constexpr std::int64_t kH = 2, kT = 128, kD = attention::kGpuChannels;

/// Sectors that the instructions of a rung's launches read and write, and the distinct ones.
struct Sectors {
  std::int64_t reads, writes, distinct_reads, distinct_writes;
};

Sectors sectors_of(const emulation::Statistics& s) {
  const auto count = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  return {count(s.reads.sectors), count(s.writes.sectors), count(s.reads.distinct),
          count(s.writes.distinct)};
}

template <typename Operands, typename Problem>
Sectors sectors_of(const Operands& operands, const Rung<Problem>& rung) {
  return sectors_of(count(rung, operands.problem()).work);
}

}  // namespace

TEST_CASE(
    "a norm with a thread per row touches a sector for each element, one with a warp an eighth") {
  const test::Rank rank;
  const norm::Operands rows(kN, kC);
  const Sectors thread = sectors_of(rows, norm::kGpuRungs[0]);
  const Sectors warp = sectors_of(rows, norm::kGpuRungs[1]);
  const Sectors registers = sectors_of(rows, norm::kGpuRungs[2]);
  // x twice, and the weight, which 32 lanes read at one address.
  CHECK(thread.reads == 2 * kElements + kElements / 32);
  CHECK(thread.writes == kElements + kN / 8);
  // x twice and the weight. rstd of a row is a sector.
  CHECK(warp.reads == 3 * kElements / 8);
  CHECK(warp.writes == kElements / 8 + kN);
  CHECK(registers.reads == 2 * kElements / 8);
  CHECK(registers.writes == kElements / 8 + kN);
  for (const Sectors& each : {thread, warp, registers}) {
    CHECK(each.distinct_reads == kElements / 8 + kC / 8);
    CHECK(each.distinct_writes == kElements / 8 + kN / 8);
  }
}

TEST_CASE("a softmax with its row in registers reads a sector once") {
  const test::Rank rank;
  const softmax::Operands rows(kN, kC);
  const Sectors thread = sectors_of(rows, softmax::kGpuRungs[0]);
  const Sectors warp = sectors_of(rows, softmax::kGpuRungs[1]);
  const Sectors registers = sectors_of(rows, softmax::kGpuRungs[2]);
  // x twice, and for each row its target and x at the target.
  CHECK(thread.reads == 2 * kElements + kN / 8 + kN);
  CHECK(thread.writes == kElements + kN / 8);
  CHECK(warp.reads == 2 * kElements / 8 + 2 * kN);
  CHECK(registers.reads == kElements / 8 + 2 * kN);
  CHECK(registers.writes == kElements / 8 + kN);
}

TEST_CASE(
    "attention with tiles reads a key once for 64 queries, with a thread per query for each warp") {
  const test::Rank rank;
  const attention::Operands heads(kH, kT, kD);
  // A channel of a key or value is one sector for a warp. Each lane has sectors of its own for its
  // query and its scores: read for the weights, and for each channel of the output.
  constexpr std::int64_t kScores = kT * kT;
  const Sectors thread = sectors_of(heads, attention::kGpuRungs[0]);
  CHECK(thread.reads == kH * kScores * (2 * kD + 2 * kD / 32 + 1));
  CHECK(thread.writes == kH * (2 * kScores + kT * kD));
  CHECK(thread.distinct_reads == 3 * kH * kT * kD / 8);

  // Rows of k and v that all blocks read, a sector for 8 channels.
  constexpr std::int64_t kBlocks = kT / 64, kRows = 2 * 64 * kBlocks * (kBlocks + 1) / 2;
  const emulation::Statistics tiles = count(attention::kGpuRungs[1], heads.problem()).work;
  // Each lane reads and writes a row of its own: half a sector at a time.
  CHECK(sectors_of(tiles).reads == kH * (kRows * kD / 8 + 2 * kT * kD / 8));
  CHECK(sectors_of(tiles).writes == kH * 2 * kT * kD / 8);
  const emulation::Statistics cores = count(attention::kGpuRungs[2], heads.problem()).work;
  CHECK(sectors_of(cores).reads == kH * (kRows * kD / 8 + kT * kD / 8));
  CHECK(sectors_of(cores).writes == kH * kT * kD / 8);
  for (const auto& each : {tiles, cores}) {
    CHECK(sectors_of(each).distinct_reads == 3 * kH * kT * kD / 8);
    CHECK(sectors_of(each).distinct_writes == kH * kT * kD / 8);
    CHECK(each.bank_conflicts == 0);
  }

  // Tiles of 64 queries and 64 keys. A thread of the second rung reads 16 times 16 bytes of each key
  // and each value of a tile, and its block has written them once.
  constexpr std::int64_t kTiles = kBlocks * (kBlocks + 1) / 2;
  CHECK(tiles.shared_accesses == kH * kTiles * (2 * 2 * 64 * 16 + 2 * 64 * 16 / 32));
  // A warp of the third does 4 x 8 products of 16 x 8 x 16 for the scores of its 16 queries, as many
  // for the outputs, and loads two right operands at a time. Lanes write 8 bytes each.
  CHECK(cores.matrix_products == kH * kTiles * 4 * 2 * 32);
  CHECK(cores.matrix_loads == 4 * kH * (kBlocks * 4 * 4 + kTiles * 4 * 32));
  CHECK(cores.shared_accesses == kH * (kBlocks + 2 * kTiles) * 64 * 64 / 4 / 32);
}

}  // namespace tessera::kernel_ladder
