// Each kernel breaks one rule. The emulator must name the rule and the place. Bugs that only
// sanitizers see are in planted.cpp.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/tensor_core.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kFullWarp;
using test::kSchedules;
using test::launch;

/// The emulator's complaints about the kernel, one for every schedule.
template <typename Kernel, typename... Arguments>
std::vector<std::string> complaints(Kernel kernel, unsigned threads, std::size_t shared_bytes,
                                    Arguments... arguments) {
  std::vector<std::string> said;
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    try {
      launch(kernel, dim3(2), dim3(threads), shared_bytes, arguments...);
      said.push_back("nothing");
    } catch (const emulation::Failure& failure) {
      said.push_back(failure.what());
    }
  }
  return said;
}

#define REQUIRE_COMPLAINTS(text, ...) \
  for (const std::string& said : complaints(__VA_ARGS__)) REQUIRE_THAT(said, Contains(text))

std::string at(int line) {
  return "misuse_test.cpp:" + std::to_string(line);
}

// ---- Barriers -----------------------------------------------------------------------------------

constexpr int kEarlyExit = __LINE__ + 3;
__global__ void exit_before_barrier() {
  if (threadIdx.x >= 40) return;
  __syncthreads();
}

TEST_CASE("misuse: a thread ends while others wait for it at a barrier") {
  REQUIRE_COMPLAINTS("threads wait for others that never arrive", exit_before_barrier, 64u, 0);
  REQUIRE_COMPLAINTS("40 (the first is 0) wait in __syncthreads at " + at(kEarlyExit),
                     exit_before_barrier, 64u, 0);
  REQUIRE_COMPLAINTS("24 (the first is 40) have ended", exit_before_barrier, 64u, 0);
}

constexpr int kOneBarrier = __LINE__ + 3, kOtherBarrier = __LINE__ + 5;
__global__ void two_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_CASE("misuse: threads wait at different barriers, both places are named") {
  REQUIRE_COMPLAINTS("__syncthreads here while other threads wait in __syncthreads at",
                     two_barriers, 64u, 0);
  REQUIRE_COMPLAINTS(at(kOneBarrier), two_barriers, 64u, 0);
  REQUIRE_COMPLAINTS(at(kOtherBarrier), two_barriers, 64u, 0);
}

__global__ void barrier_and_count() {
  // clang-format off
  threadIdx.x < 32 ? __syncthreads() : static_cast<void>(__syncthreads_count(1));
  // clang-format on
}

TEST_CASE("misuse: different barriers on one line") {
  REQUIRE_COMPLAINTS("while other threads wait in", barrier_and_count, 64u, 0);
}

__global__ void barrier_in_loop() {  // warp i makes i + 1 turns
  for (unsigned i = 0; i < 1 + threadIdx.x / 32; ++i) __syncthreads();
}

TEST_CASE("misuse: a barrier in a loop that some threads leave early") {
  REQUIRE_COMPLAINTS("32 (the first is 0) have ended", barrier_in_loop, 64u, 0);
}

// ---- Warps --------------------------------------------------------------------------------------

constexpr int kHalf = __LINE__ + 3, kBarrier = __LINE__ + 4;
__global__ void half_a_warp() {
  if (threadIdx.x < 16) {
    __shfl_xor_sync(kFullWarp, 1.0f, 1);
  }
  __syncthreads();
}

TEST_CASE("misuse: half a warp in a shuffle of the whole warp") {
  REQUIRE_COMPLAINTS("wait in __shfl_xor_sync with mask ffffffff at " + at(kHalf), half_a_warp, 32u,
                     0);
  REQUIRE_COMPLAINTS("wait in __syncthreads at " + at(kBarrier + 1), half_a_warp, 32u, 0);
}

__global__ void not_in_mask() {
  if (threadIdx.x % 2 == 1) __syncwarp(0x55555555u);
}

TEST_CASE("misuse: a lane that its own mask does not name") {
  REQUIRE_COMPLAINTS("__syncwarp: the lane itself is not in the mask", not_in_mask, 32u, 0);
}

__global__ void reads_outside_mask() {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  __shfl_sync(mask, 1, 20);
}

TEST_CASE("misuse: a shuffle reads a lane that is not in the mask") {
  REQUIRE_COMPLAINTS("__shfl_sync reads lane 20, which is not in the mask", reads_outside_mask, 32u,
                     0);
}

__global__ void beyond_block() {
  __ballot_sync(kFullWarp, 1);
}

TEST_CASE("misuse: a mask names lanes that a small block does not have") {
  REQUIRE_COMPLAINTS("the mask names lanes beyond the block's last thread", beyond_block, 40u, 0);
}

__global__ void different_collectives() {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    __any_sync(kFullWarp, 1);
  }
}

TEST_CASE("misuse: lanes of one mask do different things") {
  REQUIRE_COMPLAINTS("while other lanes of the mask wait in", different_collectives, 32u, 0);
}

__global__ void bad_width() {
  __shfl_sync(kFullWarp, 1, 0, 12);
}

TEST_CASE("misuse: a shuffle of a width that is no power of two") {
  REQUIRE_COMPLAINTS("the width 12 is not a power of two up to 32", bad_width, 32u, 0);
}

// ---- Asynchronous copies ------------------------------------------------------------------------

enum class Fault {
  none,
  no_wait,
  no_commit,
  to_unaligned,
  from_unaligned,
  to_global,
  too_many_bytes,
  waits_too_late
};

template <Fault fault>
__global__ void copy(const uint4* in, uint4* out) {
  TESSERA_SHARED(uint4, buffer, [33]);
  auto* to = reinterpret_cast<unsigned char*>(&buffer[threadIdx.x]);
  const auto* from = reinterpret_cast<const unsigned char*>(&in[threadIdx.x]);
  if (fault == Fault::to_unaligned) to += 8;
  if (fault == Fault::from_unaligned) from += 4;
  if (fault == Fault::to_global) to = reinterpret_cast<unsigned char*>(&out[threadIdx.x]);
  gpu::copy_async(to, from, fault == Fault::too_many_bytes ? 32 : 16);
  if (fault != Fault::no_commit) gpu::copy_async_commit();
  const bool early = fault != Fault::waits_too_late;
  if (early && fault != Fault::no_wait) gpu::copy_async_wait<0>();
  out[blockIdx.x * 32 + threadIdx.x] = buffer[threadIdx.x];
  if (!early) gpu::copy_async_wait<0>();
}

TEST_CASE("misuse: asynchronous copies") {
  const std::vector<uint4> in(33, uint4{1, 2, 3, 4});
  std::vector<uint4> out(64);
  const auto try_it = [&](auto kernel) {
    return complaints(kernel, 32u, 0, in.data(), out.data());
  };
  const auto require = [&](auto kernel, const char* text) {
    for (const std::string& said : try_it(kernel)) REQUIRE_THAT(said, Contains(text));
  };
  require(copy<Fault::none>, "nothing");
  require(copy<Fault::no_wait>, "ends with asynchronous copies in flight");
  require(copy<Fault::no_commit>, "ends with asynchronous copies in flight");
  require(copy<Fault::to_unaligned>, "cp.async to an address not aligned to 16 bytes");
  require(copy<Fault::from_unaligned>, "cp.async from an address not aligned to 16 bytes");
  require(copy<Fault::to_global>, "cp.async to an address outside shared memory");
  require(copy<Fault::too_many_bytes>, "cp.async of more than 16 bytes");
}

TEST_CASE("misuse: the destination of an asynchronous copy is read before the wait") {
  const std::vector<uint4> in(33, uint4{1, 2, 3, 4});
  std::vector<uint4> out(32);
  launch(copy<Fault::waits_too_late>, dim3(1), dim3(32), 0, in.data(), out.data());
  for (const uint4& words : out) REQUIRE(std::isnan(__uint_as_float(words.x)));
}

// ---- Tensor cores -------------------------------------------------------------------------------

template <int shift, bool global>
__global__ void load(unsigned char* in) {
  TESSERA_SHARED(uint4, rows, [33]);
  rows[threadIdx.x] = uint4{};
  if (threadIdx.x == 0) rows[32] = uint4{};
  __syncthreads();
  unsigned char* row = global ? in : reinterpret_cast<unsigned char*>(rows);
  unsigned r[4];
  gpu::load_matrices<false>(r, row + threadIdx.x * 16 + shift);
}

__global__ void multiply_by_half_a_warp() {
  float c[4] = {};
  const unsigned a[4] = {}, b[2] = {};
  if (threadIdx.x < 16) gpu::multiply_accumulate<bfloat16>(c, a, b);
}

TEST_CASE("misuse: matrix instructions") {
  alignas(16) unsigned char in[32 * 16] = {};
  REQUIRE_COMPLAINTS("nothing", load<0, false>, 32u, 0, in);
  REQUIRE_COMPLAINTS("ldmatrix of a row not aligned to 16 bytes", load<8, false>, 32u, 0, in);
  REQUIRE_COMPLAINTS("ldmatrix of a row that is not in shared memory", load<0, true>, 32u, 0, in);
  REQUIRE_COMPLAINTS("16 (the first is 0) wait in mma.sync", multiply_by_half_a_warp, 32u, 0);
}

// ---- Shared memory ------------------------------------------------------------------------------

__global__ void carve(std::size_t floats) {
  gpu::SharedMemory memory;
  memory.take<float>(floats);
  memory.take<float>(1, 128);
}

TEST_CASE("misuse: a kernel carves more shared memory than the launch gave") {
  REQUIRE_COMPLAINTS("nothing", carve, 32u, 132, std::size_t{5});
  REQUIRE_COMPLAINTS("carves 132 bytes of shared memory where the launch gave 131", carve, 32u, 131,
                     std::size_t{5});
}

__global__ void carve_differently() {
  gpu::SharedMemory memory;
  memory.take<float>(threadIdx.x < 32 ? 8 : 16);
}

TEST_CASE("misuse: threads carve different arrays") {
  REQUIRE_COMPLAINTS("threads carve different arrays from the same shared memory",
                     carve_differently, 64u, 256);
}

__global__ void large_declaration() {
  TESSERA_SHARED(float, large, [12 * 1024 + 1]);
  large[threadIdx.x] = 0;
}

__global__ void declaration_and_launch() {
  TESSERA_SHARED(float, some, [1024]);
  some[blockDim.x * threadIdx.y + threadIdx.x] = 0;
}

TEST_CASE("misuse: more shared memory than a block can have") {
  REQUIRE_COMPLAINTS("more than 48 KiB of shared memory in declarations", large_declaration, 32u,
                     0);
  REQUIRE_COMPLAINTS("nothing", declaration_and_launch, 32u, (227 - 4) * 1024);
  REQUIRE_COMPLAINTS(
      "more shared memory than a block of the GPU has: 4096 bytes in declarations and 228353",
      declaration_and_launch, 32u, (227 - 4) * 1024 + 1);
  REQUIRE_COMPLAINTS("a launch with 232449 bytes of shared memory: a block can have 232448",
                     declaration_and_launch, 32u, 227 * 1024 + 1);
}

/// The emulator's complaint about a launch of `kernel` under these limits.
std::string complaint_under(void (*kernel)(), std::size_t shared_bytes,
                            emulation::SharedMemoryLimits limits) {
  try {
    emulation::run({dim3(1), dim3(32), shared_bytes, /*cluster=*/1, limits}, kernel,
                   std::tuple<>());
  } catch (const emulation::Failure& failure) {
    return failure.what();
  }
  return "nothing";
}

TEST_CASE("misuse: a kernel has 48 KiB of static and dynamic shared memory unless it asks") {
  constexpr std::size_t kRest = 44 * 1024;  // declaration_and_launch declares 4 KiB
  REQUIRE(complaint_under(declaration_and_launch, kRest, {}) == "nothing");
  REQUIRE_THAT(
      complaint_under(declaration_and_launch, kRest + 1, {}),
      Contains("more than 48 KiB of shared memory without cudaFuncSetAttribute: 4096 bytes "
               "in declarations and 45057 given at launch"));
  REQUIRE_THAT(complaint_under(declaration_and_launch, 48 * 1024 + 1, {}),
               Contains("49153 bytes of dynamic shared memory: the kernel can have 49152; ask"));
  REQUIRE(complaint_under(declaration_and_launch, kRest + 1, {.dynamic_bytes = kRest + 1}) ==
          "nothing");
  REQUIRE_THAT(complaint_under(declaration_and_launch, 101, {.dynamic_bytes = 100}),
               Contains("101 bytes of dynamic shared memory: the kernel can have 100"));
}

TEST_CASE("misuse: an architecture's limit holds for static and dynamic shared memory together") {
  for (const auto& [capability, kibibytes] :
       {std::pair(80, 163), {86, 99}, {89, 99}, {90, 227}, {100, 227}, {120, 99}}) {
    const emulation::Architecture& architecture = *emulation::find_architecture(capability);
    const std::size_t most = kibibytes * std::size_t{1024};
    REQUIRE(architecture.shared_bytes == most);
    const emulation::SharedMemoryLimits limits{.dynamic_bytes = most, .block_bytes = most};
    REQUIRE(complaint_under(declaration_and_launch, most - 4096, limits) == "nothing");
    REQUIRE_THAT(complaint_under(declaration_and_launch, most - 4095, limits),
                 Contains("more shared memory than a block of the GPU has"));
  }
  REQUIRE(emulation::find_architecture(70) == nullptr);
}

TEST_CASE("launches are recorded with the kernel's name and its shared memory") {
  const auto use = [] {
    for (const emulation::KernelUse& use : emulation::kernel_uses()) {
      const bool is_it = use.kernel.find("declaration_and_launch") != std::string::npos;
      if (is_it && use.dynamic_bytes == 768) return use;
    }
    return emulation::KernelUse{};
  };
  REQUIRE(use().launches == 0);
  for (int i = 0; i < 3; ++i) launch(declaration_and_launch, dim3(2), dim3(16, 4), 768);
  REQUIRE(use().launches == 3);
  REQUIRE(use().threads == 64);
  REQUIRE(use().static_bytes == 4096);
}

__global__ void read_uninitialized(float* out) {
  TESSERA_SHARED(float, declared, [64]);
  gpu::SharedMemory memory;
  auto* carved = memory.take<float>(64);
  out[4 * blockIdx.x] = declared[5];
  out[4 * blockIdx.x + 1] = carved[5];
  declared[5] = carved[5] = 1;
  out[4 * blockIdx.x + 2] = declared[5];
  out[4 * blockIdx.x + 3] = carved[5];
}

TEST_CASE("misuse: shared memory that the block has not written reads as NaN") {
  std::vector<float> out(8);
  launch(read_uninitialized, dim3(2), dim3(1), 256, out.data());
  for (const std::size_t block : {0, 1}) {
    REQUIRE(std::isnan(out[4 * block]));
    REQUIRE(std::isnan(out[4 * block + 1]));
    REQUIRE(out[4 * block + 2] == 1);
    REQUIRE(out[4 * block + 3] == 1);
  }
}

// ---- Launches -----------------------------------------------------------------------------------

__global__ void nothing() {}

TEST_CASE("misuse: a parameter holds the address of a variable of the host's") {
  struct Captured {
    long count;
    const int* address;
  };
  const int local = 1;
  const std::vector<int> heap(1);
  REQUIRE_NOTHROW(emulation::check_parameters(std::tuple(1, 2.0f, heap.data())));
  REQUIRE_NOTHROW(emulation::check_parameters(std::tuple(Captured{7, nullptr})));
  REQUIRE_THROWS_WITH(emulation::check_parameters(std::tuple(1, &local)),
                      Contains("parameter 2 of the kernel holds an address on the host thread's "
                               "stack, at byte 0"));
  REQUIRE_THROWS_WITH(emulation::check_parameters(std::tuple(Captured{7, &local})),
                      Contains("parameter 1") && Contains("at byte 8"));
}

TEST_CASE("misuse: grids and blocks that no GPU takes") {
  const auto complaint = [](dim3 grid, dim3 block) -> std::string {
    try {
      launch(nothing, grid, block, 0);
    } catch (const emulation::Failure& failure) {
      return failure.what();
    }
    return "nothing";
  };
  REQUIRE(complaint(dim3(1), dim3(16, 16, 4)) == "nothing");
  REQUIRE_THAT(complaint(dim3(1), dim3(1025)), Contains("a block of 1025 x 1 x 1 threads"));
  REQUIRE_THAT(complaint(dim3(1), dim3(32, 33)), Contains("a block of 32 x 33 x 1 threads"));
  REQUIRE_THAT(complaint(dim3(1), dim3(1, 1, 65)), Contains("a block of 1 x 1 x 65 threads"));
  REQUIRE_THAT(complaint(dim3(1), dim3(0)), Contains("a block of 0 x 1 x 1 threads"));
  REQUIRE(complaint(dim3(1, 3, 2), dim3(1)) == "nothing");
  REQUIRE_THAT(complaint(dim3(1, 65536), dim3(1)), Contains("a grid of 1 x 65536 x 1 blocks"));
  REQUIRE_THAT(complaint(dim3(1, 1, 65536), dim3(1)), Contains("a grid of 1 x 1 x 65536 blocks"));
  REQUIRE_THAT(complaint(dim3(0), dim3(1)), Contains("a grid of 0 x 1 x 1 blocks"));
  REQUIRE_THAT(complaint(dim3(0x80000000u), dim3(1)), Contains("a grid of 2147483648 x 1 x 1"));
}

// ---- Bugs that change the result under some schedule --------------------------------------------

enum class Missing { nothing, first_barrier, last_barrier, warp_barrier, order_of_blocks };

/// Two rounds in which every thread passes a value to the mirrored thread and to the next lane.
template <Missing missing>
__global__ void exchange(float* out, int* last_block) {
  TESSERA_SHARED(float, values, [64]);
  TESSERA_SHARED(float, lanes, [64]);
  const unsigned t = threadIdx.x;
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    values[t] = static_cast<float>(100 * round + t);
    if constexpr (missing != Missing::first_barrier) __syncthreads();
    sum += values[63 - t];
    if constexpr (missing != Missing::last_barrier) __syncthreads();
    lanes[t] = sum;
    if constexpr (missing != Missing::warp_barrier) __syncwarp();
    sum += lanes[t ^ 1];
    __syncwarp();
  }
  out[blockIdx.x * 64 + t] = sum;
  if (missing == Missing::order_of_blocks && t == 0) *last_block = static_cast<int>(blockIdx.x);
}

/// Did all schedules give the same result?
template <Missing missing>
bool is_steady() {
  std::vector<std::vector<float>> results;
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<float> out(3 * 64);
    int last_block = -1;
    launch(exchange<missing>, dim3(3), dim3(64), 0, out.data(), &last_block);
    out.push_back(static_cast<float>(last_block));
    for (float& value : out) value = std::isnan(value) ? -1.0f : value;
    results.push_back(out);
  }
  for (const auto& result : results) {
    if (result != results[0]) return false;
  }
  return true;
}

TEST_CASE("misuse: a missing barrier changes the result under some schedule", "[races]") {
  REQUIRE(is_steady<Missing::nothing>());
  REQUIRE_FALSE(is_steady<Missing::first_barrier>());
  REQUIRE_FALSE(is_steady<Missing::last_barrier>());
  REQUIRE_FALSE(is_steady<Missing::warp_barrier>());
  REQUIRE_FALSE(is_steady<Missing::order_of_blocks>());
}

}  // namespace
}  // namespace tessera
