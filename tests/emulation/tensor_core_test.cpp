// The emulated tensor core's fragment layouts against CuTe's, and ldmatrix against its definition.
//
// CuTe's algebra for SM80_16x8x16, (thread, value) -> element, is written here independently of
// runtime/emulation/device/tensor_core.cpp.
#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/tensor_core.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using test::kSchedules;
using test::launch;

// cute/atom/mma_traits_sm80.hpp, SM80_16x8x16_F32BF16BF16F32_TN (and the same for F16):
//   ALayout ((4,8),(2,2,2)) : ((32,1),(16,8,128))   into m + 16 k
//   BLayout ((4,8),(2,2))   : ((16,1),(8,64))       into n +  8 k
//   CLayout ((4,8),(2,2))   : ((32,1),(16,8))       into m + 16 n
template <typename T>
__global__ void multiply(const T* a, const T* b, const float* c, float* d) {
  const unsigned lane = threadIdx.x, t0 = lane % 4, t1 = lane / 4;
  T av[8], bv[4];
  float cv[4];
  for (unsigned v = 0; v < 8; ++v) {
    av[v] = a[t0 * 32 + t1 + (v & 1) * 16 + (v >> 1 & 1) * 8 + (v >> 2) * 128];
  }
  for (unsigned v = 0; v < 4; ++v) bv[v] = b[t0 * 16 + t1 + (v & 1) * 8 + (v >> 1) * 64];
  for (unsigned v = 0; v < 4; ++v) cv[v] = c[t0 * 32 + t1 + (v & 1) * 16 + (v >> 1) * 8];
  unsigned af[4], bf[2];
  memcpy(af, av, 16);
  memcpy(bf, bv, 8);
  gpu::multiply_accumulate<T>(cv, af, bf);
  for (unsigned v = 0; v < 4; ++v) d[t0 * 32 + t1 + (v & 1) * 16 + (v >> 1) * 8] = cv[v];
}

TEMPLATE_TEST_CASE("mma.sync multiplies fragments laid out as CuTe says", "", bfloat16, float16) {
  std::mt19937 generator(7);
  const auto integer = [&] { return static_cast<float>(static_cast<int>(generator() % 17) - 8); };
  std::vector<TestType> a(16 * 16), b(16 * 8);
  std::vector<float> c(16 * 8), d(16 * 8);
  for (TestType& x : a) x = TestType(integer());
  for (TestType& x : b) x = TestType(integer());
  for (float& x : c) x = integer();
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    launch(multiply<TestType>, dim3(1), dim3(32), 0, a.data(), b.data(), c.data(), d.data());
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 8; ++n) {
        double sum = c[m + 16 * n];
        for (std::size_t k = 0; k < 16; ++k) {
          sum += static_cast<float>(a[m + 16 * k]) * static_cast<float>(b[n + 8 * k]);
        }
        REQUIRE(d[m + 16 * n] == sum);
      }
    }
  }
}

template <bool transposed>
__global__ void load(const std::uint16_t* in, unsigned* out) {
  TESSERA_SHARED(uint4, rows, [32]);
  rows[threadIdx.x] = reinterpret_cast<const uint4*>(in)[threadIdx.x];
  __syncthreads();
  unsigned r[4];
  gpu::load_matrices<transposed>(r, &rows[threadIdx.x]);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = r[i];
}

// PTX, "ldmatrix": lane l receives of each matrix row l / 4, columns 2 (l % 4) and the next.
TEST_CASE("ldmatrix gives rows, or columns when it transposes") {
  std::vector<std::uint16_t> in(256);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(i);
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    for (const bool transposed : {false, true}) {
      std::vector<unsigned> out(128);
      launch(transposed ? load<true> : load<false>, dim3(1), dim3(32), 0,
             reinterpret_cast<const std::uint16_t*>(in.data()), out.data());
      for (unsigned lane = 0; lane < 32; ++lane) {
        for (unsigned matrix = 0; matrix < 4; ++matrix) {
          for (unsigned half = 0; half < 2; ++half) {
            const unsigned row = lane / 4, column = lane % 4 * 2 + half;
            const unsigned place = transposed ? column * 8 + row : row * 8 + column;
            REQUIRE((out[lane * 4 + matrix] >> 16 * half & 0xffffu) == matrix * 64 + place);
          }
        }
      }
    }
  }
}

// Row r of every matrix begins `stride` bytes after row r - 1, or with its chunks of 16 bytes
// exchanged (xor).
__global__ void load_with_stride(unsigned stride, bool swizzled) {
  gpu::SharedMemory memory;
  auto* tile = memory.take<unsigned char>(8 * 256, 128);
  for (unsigned i = threadIdx.x; i < 8 * 256; i += 32) tile[i] = 0;
  __syncwarp();
  const unsigned row = threadIdx.x % 8;
  unsigned r[4];
  gpu::load_matrices<false>(r, tile + row * stride + (swizzled ? row * 16 : 0));
}

TEST_CASE("bank conflicts of ldmatrix are counted") {
  const auto conflicts = [](unsigned stride, bool swizzled) {
    emulation::reset_statistics();
    launch(load_with_stride, dim3(1), dim3(32), 8 * 256, stride, swizzled);
    REQUIRE(emulation::statistics().matrix_loads == 4);
    return emulation::statistics().bank_conflicts;
  };
  REQUIRE(conflicts(16, false) == 0);   // rows one after another
  REQUIRE(conflicts(144, false) == 0);  // padded by 16 bytes
  REQUIRE(conflicts(128, true) == 0);   // exchanged
  REQUIRE(conflicts(0, false) == 0);    // all read the same row
  REQUIRE(conflicts(32, false) == 4);   // two rows each in 4 of 8 groups of banks
  REQUIRE(conflicts(128, false) ==
          28);  // all in one bank group: 7 extra turns for each of 4 matrices
}

}  // namespace
}  // namespace tessera
