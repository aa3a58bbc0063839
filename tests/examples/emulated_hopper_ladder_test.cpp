// The rungs of the ladder of products on Hopper touch as much memory as the book says.
#include <catch2/catch.hpp>

#include "examples/kernel_ladder/counted.h"
#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/matmul/operands.h"
#include "tests/support/rank.h"

namespace tessera::kernel_ladder {
namespace {

// Four tiles of 128 x 256 down, and two across. A step has 64 depths.
constexpr std::uint64_t kM = 512, kN = 512, kK = 192, kTiles = kM / 128 * kN / 256;
constexpr std::uint64_t kSteps = kTiles * kK / 64;
constexpr std::uint64_t kOfA = 128 * 64 * 2, kOfB = 64 * 256 * 2;  // bytes of a step's tiles

// Multiprocessors of the emulated GPU. Each has a thread block that stays.
constexpr std::uint64_t kBlocks = 4;

/// Checks the counts that all rungs share: each element of c is stored once, in whole sectors, and each matrix
/// instruction multiplies 64 x 16 by 16 x 256 elements.
emulation::Statistics counts_of(std::size_t rung) {
  const test::Rank rank;
  const Operands operands(kM, kN, kK, DType::bf16);
  const auto work = count(hopper::kRungs[rung], operands.product<bfloat16>()).work;
  CHECK(work.writes.sectors == kM * kN / 8);
  CHECK(work.reads.distinct == (kM * kK + kK * kN) / 16);
  CHECK(work.warpgroup_products == kM * kN * kK / (64 * 256 * 16));
  CHECK(work.matrix_products == 0);
  CHECK(work.bank_conflicts == 0);
  return work;
}

}  // namespace

TEST_CASE("threads that load the tiles of a warpgroup copy 16 bytes in two instructions") {
  const emulation::Statistics counts = counts_of(0);
  CHECK(counts.reads.sectors == kSteps * (kOfA + kOfB) / 32);
  CHECK(counts.bulk_copy_bytes == 0);
  CHECK(counts.shared_accesses == kSteps * (kOfA + kOfB) / (32 * 16));
  CHECK(counts.blocks == kTiles);
  CHECK(counts.barriers == kSteps);
}

TEST_CASE("the copy engine loads a step of 48 KB in five copies") {
  const emulation::Statistics counts = counts_of(1);
  CHECK(counts.reads.sectors == kSteps * (kOfA + kOfB) / 32);
  CHECK(counts.bulk_copy_bytes == kSteps * (kOfA + kOfB));
  CHECK(counts.tile_copies == kSteps * 5);
  CHECK(counts.shared_accesses == 0);
  CHECK(counts.blocks == kTiles);
}

TEST_CASE("a thread block of each multiprocessor draws tiles, and one number more") {
  const emulation::Statistics counts = counts_of(2);
  CHECK(counts.reads.sectors == kSteps * (kOfA + kOfB) / 32);
  CHECK(counts.blocks == kBlocks);
  // The counter is reset once. A number is written once, and read by eight warps.
  CHECK(counts.atomics == kTiles + kBlocks + 1);
  CHECK(counts.shared_accesses == (kTiles + kBlocks) * (1 + 8));
}

TEST_CASE("results pass through shared memory in 768 instructions of warps, without conflicts") {
  const emulation::Statistics counts = counts_of(3);
  CHECK(counts.reads.sectors == kSteps * (kOfA + kOfB) / 32);
  // A lane writes two sums, and reads four. A number is read by the epilogue's three warps, too.
  CHECK(counts.shared_accesses ==
        kTiles * 128 * 256 / 32 * 3 / 4 + (kTiles + kBlocks) * (1 + 8 + 3));
}

TEST_CASE("thread blocks of a cluster read b's tile once for both") {
  const emulation::Statistics counts = counts_of(4);
  CHECK(counts.reads.sectors == kSteps * (kOfA + kOfB / 2) / 32);
  CHECK(counts.tile_copies == kSteps * (1 + 2));
  CHECK(counts.blocks == kBlocks);
  // One block draws for two. It writes a number for each, and the other producer reads it, too.
  const std::uint64_t draws = kTiles / 2 + kBlocks / 2;
  CHECK(counts.atomics == draws + 1);
  CHECK(counts.shared_accesses == kTiles * 128 * 256 / 32 * 3 / 4 + draws * (2 + 2 * 11 + 1));
}

}  // namespace tessera::kernel_ladder
