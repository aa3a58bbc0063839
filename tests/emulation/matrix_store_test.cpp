// stmatrix on the emulator against its definition, its bank conflicts, and that broken rules are noticed.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "kernels/cuda/hopper.h"
#include "runtime/emulation/device/emulator.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::launch;

/// Matrix m has the elements 64 m + 8 row + column. Lane l holds of each matrix row l / 4, columns
/// 2 (l % 4) and the next (PTX, "stmatrix"). Rows follow each other in shared memory.
__global__ void store(std::uint16_t* out) {
  gpu::SharedMemory memory;
  auto* const tile = memory.take<std::uint16_t>(256, 128);
  const unsigned lane = threadIdx.x;
  unsigned r[4];
  for (unsigned m = 0; m < 4; ++m) {
    const unsigned low = 64 * m + lane / 4 * 8 + lane % 4 * 2;
    r[m] = low | (low + 1) << 16;
  }
  gpu::store_matrices(tile + 8 * lane, r);
  __syncwarp();
  for (unsigned i = lane; i < 256; i += 32) out[i] = tile[i];
}

/// Row r of every matrix begins `stride` bytes after row r - 1, or with its chunks of 16 bytes exchanged.
__global__ void store_with_stride(unsigned stride, bool swizzled) {
  gpu::SharedMemory memory;
  auto* const tile = memory.take<unsigned char>(4 * 8 * 256, 128);
  const unsigned row = threadIdx.x % 8;
  const unsigned r[4] = {};
  gpu::store_matrices(tile + threadIdx.x / 8 * 2048 + row * stride + (swizzled ? row * 16 : 0), r);
}

enum class StoreBug { none, unaligned, not_shared, lanes_missing };

__global__ void misused_store(StoreBug bug, unsigned char* global) {
  gpu::SharedMemory memory;
  auto* const tile = memory.take<unsigned char>(32 * 16 + 8, 128);
  const unsigned r[4] = {};
  if (bug == StoreBug::lanes_missing && threadIdx.x >= 16) return;
  unsigned char* const rows = bug == StoreBug::not_shared ? global : tile;
  gpu::store_matrices(rows + threadIdx.x * 16 + (bug == StoreBug::unaligned ? 8 : 0), r);
}

}  // namespace

TEST_CASE("stmatrix stores rows of fragments in every order of threads") {
  for (const auto& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<std::uint16_t> out(256);
    launch(store, dim3(1), dim3(32), 512, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == i);
  }
}

TEST_CASE("bank conflicts of stmatrix are counted") {
  const auto conflicts = [](unsigned stride, bool swizzled) {
    emulation::reset_statistics();
    launch(store_with_stride, dim3(1), dim3(32), 4 * 8 * 256, stride, swizzled);
    return emulation::statistics().bank_conflicts;
  };
  REQUIRE(conflicts(16, false) == 0);    // rows one after another
  REQUIRE(conflicts(128, true) == 0);    // exchanged
  REQUIRE(conflicts(32, false) == 4);    // two rows each in 4 of 8 groups of banks
  REQUIRE(conflicts(128, false) == 28);  // all in one: 7 extra turns for each of 4 matrices
}

TEST_CASE("misuse: stmatrix") {
  std::vector<unsigned char> global(1024);
  const auto said = [&](StoreBug bug) -> std::string {
    try {
      launch(misused_store, dim3(1), dim3(32), 1024, bug, global.data());
    } catch (const emulation::Failure& failure) {
      return failure.what();
    }
    return "nothing";
  };
  REQUIRE(said(StoreBug::none) == "nothing");
  REQUIRE_THAT(said(StoreBug::unaligned), Contains("stmatrix of a row not aligned to 16 bytes"));
  REQUIRE_THAT(said(StoreBug::not_shared), Contains("stmatrix of a row that is not in shared"));
  REQUIRE_THAT(said(StoreBug::lanes_missing), Contains("wait in stmatrix"));
}

}  // namespace tessera
