// Hopper's products of wide tiles, and of tiles with a column of A in each row, on the emulator.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/cuda/panel_tile.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using gpu::LeftPanels;
using gpu::Panels;

enum class Bug { none, left_written_in_flight };

constexpr int kRows = 64, kN = 256, kDepth = 64;
constexpr std::size_t kBytes = (kRows + kN) * kDepth * sizeof(bfloat16) + sizeof(gpu::Barrier);

/// Element (row, channel) of a tile, by the 128-byte swizzle.
template <typename Tile>
bfloat16& at(const Tile& tile, int rows, int row, int channel) {
  const int chunk = channel % 64 / 8 ^ row % 8;
  return tile.data[(channel / 64 * rows + row) * 64 + chunk * 8 + channel % 8];
}

/// out (64 x 256) = a (64 x 64) b (64 x 256), by one warpgroup. Rows of the tile of a are columns of a,
/// and rows of the tile of b are rows of b.
template <Bug bug>
__global__ void product(const bfloat16* a_in, const bfloat16* b_in, float* out) {
  gpu::TileMemory memory;
  const gpu::PanelTile<bfloat16, kDepth, kRows> a{memory.take<bfloat16>(kRows * kDepth, 1024)};
  const gpu::PanelTile<bfloat16, kDepth, kN> b{memory.take<bfloat16>(kN * kDepth, 1024)};
  auto* const full = memory.take<gpu::Barrier>(1);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int i = thread; i < kRows * kDepth; i += 128) {
    gpu::write_for_engines(at(a, kDepth, i % kDepth, i / kDepth), a_in[i]);
  }
  for (int i = thread; i < kDepth * kN; i += 128) {
    gpu::write_for_engines(at(b, kDepth, i / kN, i % kN), b_in[i]);
  }
  if (thread == 0) {
    gpu::initialize(*full, 1);
    gpu::publish_barriers();
  }
  gpu::fence_shared_for_engines();
  __syncthreads();
  float c[kN / 8][4];
  gpu::begin_products();
  for (int step = 0; step < kDepth / 16; ++step) {
    gpu::multiply_tiles<bfloat16, Panels::of_rows_of_b, kN, LeftPanels::of_columns_of_a>(
        c, a.columns(step), b.columns(step), step > 0);
  }
  gpu::commit_products();
  gpu::wait_products<1>();
  if (bug == Bug::left_written_in_flight && thread == 0) {
    gpu::arrive_and_expect(*full, 16);
    gpu::copy_bytes(a.data + 17 * 64, a_in, 16, *full);
  }
  gpu::wait_products<0>(c);
  for (int n = 0; n < kN / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + lane / 4 + i / 2 * 8, column = 8 * n + lane % 4 * 2 + i % 2;
      out[row * kN + column] = c[n][i];
    }
  }
}

/// Small numbers, exact in bf16 and in sums of 64 products.
std::vector<bfloat16> matrix(int count, int seed) {
  std::vector<bfloat16> values;
  for (int i = 0; i < count; ++i) {
    values.emplace_back(static_cast<float>((i * 37 + seed * 11) % 17 - 8) / 4.0f);
  }
  return values;
}

template <Bug bug>
std::vector<float> results() {
  const auto a = matrix(kRows * kDepth, 1), b = matrix(kDepth * kN, 2);
  std::vector<float> out(kRows * kN, -1.0f);
  test::launch(product<bug>, dim3(1), dim3(128), kBytes, a.data(), b.data(), out.data());
  return out;
}

}  // namespace

TEST_CASE("wgmma multiplies a tile of columns of A with 256 columns of B") {
  const auto a = matrix(kRows * kDepth, 1), b = matrix(kDepth * kN, 2);
  std::vector<float> expected(kRows * kN, 0.0f);
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kN; ++n) {
      for (int k = 0; k < kDepth; ++k) {
        expected[m * kN + n] +=
            static_cast<float>(a[m * kDepth + k]) * static_cast<float>(b[k * kN + n]);
      }
    }
  }
  for (const auto& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    REQUIRE(results<Bug::none>() == expected);
  }
}

TEST_CASE("misuse: a tile of columns of A is overwritten while wgmma reads it") {
  for (const auto& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    REQUIRE_THROWS_WITH(results<Bug::left_written_in_flight>(),
                        Catch::Contains("that a wgmma in flight still reads"));
  }
}

}  // namespace tessera
