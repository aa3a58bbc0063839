// The rungs of the ladder of products for a GPU touch as much memory as the book says.
#include <catch2/catch.hpp>

#include "examples/kernel_ladder/counted.h"
#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "examples/kernel_ladder/matmul/operands.h"
#include "tests/support/rank.h"

namespace tessera::kernel_ladder {
namespace {

// Whole tiles of every rung. A sector has 8 floats, a warp 32 lanes.
constexpr std::int64_t kM = 128, kN = 256, kK = 64, kProducts = kM * kN * kK;

template <typename T>
emulation::Statistics counts_of(const Rung<Product<T>>& rung) {
  const test::Rank rank;
  const Operands operands(kM, kN, kK, dtype_of<T>);
  const emulation::Statistics work = count(rung, operands.product<T>()).work;
  CHECK(work.writes.sectors == kM * kN / 8);
  return work;
}

}  // namespace

TEST_CASE("a product with a thread per element reads five sectors for 32 products") {
  const emulation::Statistics counts = counts_of(matmul::kGpuRungs[0]);
  // A warp reads one element of a, in one sector, and 32 of b, in four.
  CHECK(counts.reads.sectors == kProducts / 32 * 5);
  CHECK(counts.reads.distinct == (kM * kK + kK * kN) / 8);
  CHECK(counts.shared_accesses == 0);
}

TEST_CASE("a product with shared tiles reads each element once per tile") {
  const emulation::Statistics counts = counts_of(matmul::kGpuRungs[1]);
  // a for each 32 columns of c, b for each 32 rows.
  CHECK(counts.reads.sectors == kProducts / 32 * 2 / 8);
  // A warp's 32 products take 4 loads of a and one of b for each 4. Each tile is stored once.
  CHECK(counts.shared_accesses == kProducts / 32 * 5 / 4 + kProducts / 32 * 2 / 32);
  CHECK(counts.bank_conflicts == 0);
}

TEST_CASE("a product with tiles in registers loads four vectors for 64 products of a lane") {
  const emulation::Statistics counts = counts_of(matmul::kGpuRungs[2]);
  CHECK(counts.reads.sectors == kProducts / 128 * 2 / 8);
  // Four elements of a are stored one by one, as many of b in one vector.
  const std::int64_t copies = kProducts / 128 / 32 + kProducts / 128 / (4 * 32);
  CHECK(counts.shared_accesses == kProducts / 32 * 4 / 64 + copies);
  CHECK(counts.bank_conflicts == 0);
}

TEST_CASE(
    "a product on tensor cores copies half the bytes and issues an instruction for 2,048 "
    "products") {
  const emulation::Statistics counts = counts_of(matmul::kTensorCores);
  CHECK(counts.reads.sectors == kProducts / 128 * 2 / 16);
  CHECK(counts.async_copy_bytes == counts.reads.sectors * 32);
  CHECK(counts.matrix_products == kProducts / (16 * 8 * 16));
  CHECK(counts.matrix_loads == kProducts / (64 * 32 * 16) * (4 + 2) * 4);
  // Eight lanes write 64 bytes each of two rows of a, 80 bytes apart: four banks get both.
  CHECK(counts.bank_conflicts == kProducts / 128 * 2 / 16 / 8);
}

}  // namespace tessera::kernel_ladder
