// Hopper's products of wide tiles, and of tiles with a column of A in each row, on the emulator.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/panel_tile.h"
#include "kernels/fp8/grid.h"
#include "runtime/emulation/device/arithmetic.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using gpu::LeftPanels;
using gpu::Panels;

enum class Bug {
  none,
  left_written_in_flight,
  left_copied_in_flight,
  no_wait,
  no_fence,
  fence_before_wait,
};

constexpr int kRows = 64, kN = 256, kDepth = 64;
constexpr std::size_t kBytes = (kRows + kN) * kDepth * sizeof(bfloat16) + sizeof(gpu::Barrier);

/// Element (row, channel) of a tile, by the 128-byte swizzle.
template <typename Tile>
auto& at(const Tile& tile, int rows, int row, int channel) {
  const int chunk = channel % 64 / 8 ^ row % 8;
  return tile.data[(channel / 64 * rows + row) * 64 + chunk * 8 + channel % 8];
}

/// out (64 x 256) = a (64 x 64) b (64 x 256), by one warpgroup. Rows of the tile of a are columns of a,
/// and rows of the tile of b are rows of b. Threads write b, or copy it asynchronously.
template <Bug bug, bool kCopies = false>
__global__ void product(const bfloat16* a_in, const bfloat16* b_in, float* out) {
  gpu::TileMemory memory;
  const gpu::PanelTile<bfloat16, kDepth, kRows> a{memory.take<bfloat16>(kRows * kDepth, 1024)};
  const gpu::PanelTile<bfloat16, kDepth, kN> b{memory.take<bfloat16>(kN * kDepth, 1024)};
  auto* const full = memory.take<gpu::Barrier>(1);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int i = thread; i < kRows * kDepth; i += 128) {
    gpu::write_for_engines(at(a, kDepth, i % kDepth, i / kDepth), a_in[i]);
  }
  gpu::fence_shared_for_engines();
  if constexpr (kCopies) {
    for (int i = 8 * thread; i < kDepth * kN; i += 8 * 128) {
      gpu::copy_async(&at(b, kDepth, i / kN, i % kN), b_in + i, 16);
    }
    gpu::copy_async_commit();
    if (bug == Bug::fence_before_wait) gpu::fence_shared_for_engines();
    if (bug != Bug::no_wait) gpu::copy_async_wait<0>();
  } else {
    for (int i = thread; i < kDepth * kN; i += 128) {
      gpu::write_for_engines(at(b, kDepth, i / kN, i % kN), b_in[i]);
    }
  }
  if (bug != Bug::no_fence && bug != Bug::fence_before_wait) gpu::fence_shared_for_engines();
  if (thread == 0) {
    gpu::initialize(*full, 1);
    gpu::publish_barriers();
  }
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
  if (bug == Bug::left_copied_in_flight && thread == 0) {
    gpu::copy_async(a.data + 17 * 64, a_in, 16);
  }
  gpu::wait_products<0>(c);
  for (int n = 0; n < kN / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + lane / 4 + i / 2 * 8, column = 8 * n + lane % 4 * 2 + i % 2;
      out[row * kN + column] = c[n][i];
    }
  }
}

constexpr int kColumns = 128, kPairs = 64;
constexpr std::size_t kBytesOfPairs = (kRows + kColumns) * kPairs * sizeof(E4m3Pair);

/// out (64 x 128) = a (64 x 128) b^T (128 x 128) of pairs of 8-bit numbers, by one warpgroup.
__global__ void product_of_pairs(const E4m3Pair* a_in, const E4m3Pair* b_in, float* out) {
  gpu::TileMemory memory;
  const gpu::PanelTile<E4m3Pair, kRows, kPairs> a{memory.take<E4m3Pair>(kRows * kPairs, 1024)};
  const gpu::PanelTile<E4m3Pair, kColumns, kPairs> b{
      memory.take<E4m3Pair>(kColumns * kPairs, 1024)};
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int i = thread; i < kRows * kPairs; i += 128) {
    gpu::write_for_engines(at(a, kRows, i / kPairs, i % kPairs), a_in[i]);
  }
  for (int i = thread; i < kColumns * kPairs; i += 128) {
    gpu::write_for_engines(at(b, kColumns, i / kPairs, i % kPairs), b_in[i]);
  }
  gpu::fence_shared_for_engines();
  __syncthreads();
  float c[kColumns / 8][4];
  gpu::begin_products();
  for (int step = 0; step < kPairs / 16; ++step) {
    gpu::multiply_tiles<E4m3Pair, Panels::of_columns_of_b, kColumns>(c, a.rows(0, step),
                                                                     b.rows(0, step), step > 0);
  }
  gpu::commit_products();
  gpu::wait_products<0>(c);
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + lane / 4 + i / 2 * 8, column = 8 * n + lane % 4 * 2 + i % 2;
      out[row * kColumns + column] = c[n][i];
    }
  }
}

std::vector<float> product_of(const std::vector<std::uint8_t>& a,
                              const std::vector<std::uint8_t>& b) {
  const auto pairs = [](const std::vector<std::uint8_t>& codes) {
    std::vector<E4m3Pair> values(codes.size() / 2);
    std::memcpy(values.data(), codes.data(), codes.size());
    return values;
  };
  std::vector<float> out(kRows * kColumns, -1.0f);
  test::launch(product_of_pairs, dim3(1), dim3(128), kBytesOfPairs, pairs(a).data(),
               pairs(b).data(), out.data());
  return out;
}

/// Small numbers, exact in bf16 and in sums of 64 products.
std::vector<bfloat16> matrix(int count, int seed) {
  std::vector<bfloat16> values;
  for (int i = 0; i < count; ++i) {
    values.emplace_back(static_cast<float>((i * 37 + seed * 11) % 17 - 8) / 4.0f);
  }
  return values;
}

template <Bug bug, bool kCopies = false>
std::vector<float> results() {
  const auto a = matrix(kRows * kDepth, 1), b = matrix(kDepth * kN, 2);
  std::vector<float> out(kRows * kN, -1.0f);
  test::launch(product<bug, kCopies>, dim3(1), dim3(128), kBytes, a.data(), b.data(), out.data());
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
    REQUIRE(results<Bug::none, /*kCopies=*/true>() == expected);
  }
}

TEST_CASE("wgmma multiplies 8-bit numbers, 32 of the depth at a time") {
  constexpr int kDepths = 2 * kPairs;
  // Eighths of 2^-3 and 2^-1, and their negatives: sums are exact.
  const auto codes = [](int rows, int seed) {
    std::vector<std::uint8_t> values;
    for (int i = 0; i < rows * kDepths; ++i) {
      const int n = (i * 37 + i / kDepths * 5 + seed) % 29;
      values.push_back(
          static_cast<std::uint8_t>((n < 8 ? 0x20 + n : 0x30 + n % 8) | n % 3 / 2 << 7));
    }
    return values;
  };
  const auto a = codes(kRows, 1), b = codes(kColumns, 2);
  const Fp8Grid grid = Fp8Grid::of(DType::e4m3);
  std::vector<float> expected(kRows * kColumns, 0.0f);
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kColumns; ++n) {
      for (int k = 0; k < kDepths; ++k) {
        expected[m * kColumns + n] +=
            grid.value_of(a[m * kDepths + k]) * grid.value_of(b[n * kDepths + k]);
      }
    }
  }
  CHECK(product_of(a, b) == expected);
}

TEST_CASE("wgmma knows every 8-bit number, and cuts small terms if arithmetic is approximate") {
  constexpr int kDepths = 2 * kPairs;
  constexpr std::uint8_t kOne = 0x38;
  std::vector<std::uint8_t> a(kRows * kDepths, 0), b(kColumns * kDepths, 0);
  // Row m has the codes 4 m to 4 m + 3, of which column n takes number n % 4.
  for (int m = 0; m < kRows; ++m) {
    for (int i = 0; i < 4; ++i) a[m * kDepths + 37 * i] = static_cast<std::uint8_t>(4 * m + i);
  }
  for (int n = 0; n < kColumns; ++n) b[n * kDepths + 37 * (n % 4)] = kOne;
  std::vector<float> found = product_of(a, b);
  const Fp8Grid grid = Fp8Grid::of(DType::e4m3);
  for (int code = 0; code < 256; ++code) {
    const float value = found[code / 4 * kColumns + code % 4];
    // 0 times NaN is NaN in the other columns of the row.
    const bool has_nan = code / 4 == 0x7f / 4 || code / 4 == 0xff / 4;
    CHECK((has_nan ? std::isnan(value) : value == grid.value_of(static_cast<std::uint8_t>(code))));
  }
  a.assign(a.size(), 0);
  b.assign(b.size(), kOne);
  a[0] = 0x70;  // 128
  a[1] = 0x04;  // 2^-7: 14 bits below
  a[2] = 0x08;  // 2^-6
  CHECK(product_of(a, b)[0] == 128.0f + 0x1p-6f + 0x1p-7f);
  emulation::set_arithmetic(emulation::Arithmetic::approximate);
  found = product_of(a, b);
  emulation::set_arithmetic(emulation::Arithmetic::exact);
  CHECK(found[0] == 128.0f + 0x1p-6f);
}

TEST_CASE("misuse: a tile of columns of A is overwritten while wgmma reads it") {
  for (const auto& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    REQUIRE_THROWS_WITH(results<Bug::left_written_in_flight>(),
                        Catch::Contains("that a wgmma in flight still reads"));
    REQUIRE_THROWS_WITH(
        results<Bug::left_copied_in_flight>(),
        Catch::Contains("cp.async to shared memory that a wgmma in flight still reads"));
  }
}

TEST_CASE("misuse: wgmma reads asynchronous copies without a wait, or without a fence after it") {
  for (const auto& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    REQUIRE_THROWS_WITH((results<Bug::no_wait, true>()),
                        Catch::Contains("its thread has not waited for it"));
    REQUIRE_THROWS_WITH((results<Bug::no_fence, true>()),
                        Catch::Contains("without a fence of its thread since"));
    REQUIRE_THROWS_WITH((results<Bug::fence_before_wait, true>()),
                        Catch::Contains("without a fence of its thread since"));
  }
}

}  // namespace tessera
