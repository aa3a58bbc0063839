// CUDA's language extensions have the meaning of the CUDA C++ Programming Guide.
#include <catch2/catch.hpp>

#include <cmath>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "kernels/cuda/tensor_core.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using test::kFullWarp;
using test::kSchedules;
using test::launch;

__global__ void write_coordinates(int* blocks, int* threads) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  blocks[i] = static_cast<int>(100 * blockIdx.z + 10 * blockIdx.y + blockIdx.x);
  threads[i] = static_cast<int>(100 * threadIdx.z + 10 * threadIdx.y + threadIdx.x);
}

TEST_CASE("every thread of a grid runs once and knows its coordinates") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<int> blocks(2 * 3 * 4 * 24, -1), threads(blocks.size(), -1);
    launch(write_coordinates, dim3(4, 3, 2), dim3(2, 3, 4), 0, blocks.data(), threads.data());
    std::size_t i = 0;
    for (int z = 0; z < 2; ++z) {
      for (int y = 0; y < 3; ++y) {
        for (int x = 0; x < 4; ++x) {
          for (int w = 0; w < 4; ++w) {
            for (int v = 0; v < 3; ++v) {
              for (int u = 0; u < 2; ++u, ++i) {
                REQUIRE(blocks[i] == 100 * z + 10 * y + x);
                REQUIRE(threads[i] == 100 * w + 10 * v + u);
              }
            }
          }
        }
      }
    }
  }
}

__global__ void note_order(int* order, int* count) {
  order[atomicAdd(count, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

TEST_CASE("threads and blocks run in the schedule's order") {
  const auto order_under = [](emulation::Schedule schedule) {
    const test::ScheduleGuard guard(schedule);
    std::vector<int> order(4 * 70, -1);
    int count = 0;
    launch(note_order, dim3(4), dim3(70), 0, order.data(), &count);
    return order;
  };
  using emulation::Order;
  std::vector<int> expected(4 * 70);
  std::iota(expected.begin(), expected.end(), 0);
  REQUIRE(order_under({Order::forward, Order::forward, 1}) == expected);
  std::reverse(expected.begin(), expected.end());
  REQUIRE(order_under({Order::reverse, Order::reverse, 1}) == expected);

  const std::vector<int> one = order_under({Order::shuffled, Order::shuffled, 1});
  const std::vector<int> two = order_under({Order::shuffled, Order::shuffled, 2});
  REQUIRE(one != two);
  REQUIRE(one == order_under({Order::shuffled, Order::shuffled, 1}));
  for (const std::vector<int>& order : {one, two}) {
    REQUIRE(std::set<int>(order.begin(), order.end()).size() == 4 * 70);
    REQUIRE_FALSE(std::is_sorted(order.begin(), order.end()));
  }
}

// Every thread sums 0..1023 by shuffles and one barrier, `turns` times with the same arrays.
template <typename T>
struct Adder {
  template <int distance>
  __device__ static T warp_sum(T value) {
    value += __shfl_down_sync(kFullWarp, value, distance);
    if constexpr (distance > 1) value = warp_sum<distance / 2>(value);
    return value;
  }
  __device__ static T block_sum(T value) {
    TESSERA_SHARED(T, partial, [32]);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = warp_sum<16>(value);
    __syncthreads();
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    return __shfl_sync(kFullWarp, warp_sum<16>(lane < blockDim.x / 32 ? partial[lane] : T(0)), 0);
  }
};

template <typename T>
__global__ void sum_twice(T* out) {
  const T once = Adder<T>::block_sum(static_cast<T>(threadIdx.x));
  const T twice = Adder<T>::block_sum(once);
  out[blockIdx.x * blockDim.x + threadIdx.x] = twice;
}

TEMPLATE_TEST_CASE("1024 threads add up by nested templates of shuffles and barriers", "", int,
                   long long, float, double) {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<TestType> out(3 * 1024, TestType(-1));
    launch(sum_twice<TestType>, dim3(3), dim3(1024), 0, out.data());
    for (const TestType value : out) REQUIRE(value == TestType(1024 * (1023 * 512)));
  }
}

__global__ void shuffle(int* out, int which, int argument, int width) {
  const int value = static_cast<int>(threadIdx.x);
  int result = -1;
  if (which == 0) result = __shfl_sync(kFullWarp, value, argument, width);
  if (which == 1) result = __shfl_up_sync(kFullWarp, value, argument, width);
  if (which == 2) result = __shfl_down_sync(kFullWarp, value, argument, width);
  if (which == 3) result = __shfl_xor_sync(kFullWarp, value, argument, width);
  out[value] = result;
}

// Section "Warp Shuffle Functions": a source outside the segment gives the lane its own value;
// __shfl_sync takes the source modulo the width; __shfl_xor_sync may read earlier segments.
int shuffled_from(int lane, int which, int argument, int width) {
  const int base = lane / width * width;
  if (which == 0) return base + argument % width;
  if (which == 1) return lane - argument < base ? lane : lane - argument;
  if (which == 2) return lane + argument >= base + width ? lane : lane + argument;
  const int other = lane ^ argument;
  return other >= base + width ? lane : other;
}

TEST_CASE("shuffles take values from the lanes that the guide says") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    for (int which = 0; which < 4; ++which) {
      for (const int width : {1, 2, 8, 32}) {
        for (const int argument : {0, 1, 3, 5, 16, 31}) {
          std::vector<int> out(32);
          launch(shuffle, dim3(1), dim3(32), 0, out.data(), which, argument, width);
          for (int lane = 0; lane < 32; ++lane) {
            INFO("shuffle " << which << " argument " << argument << " width " << width);
            REQUIRE(out[lane] == shuffled_from(lane, which, argument, width));
          }
        }
      }
    }
  }
}

__global__ void vote(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  unsigned* own = out + 6 * threadIdx.x;
  own[0] = __ballot_sync(kFullWarp, lane % 3 == 0);
  own[1] = static_cast<unsigned>(__any_sync(kFullWarp, lane == 7));
  own[2] = static_cast<unsigned>(__any_sync(kFullWarp, 0));
  own[3] = static_cast<unsigned>(__all_sync(kFullWarp, lane < 32));
  own[4] = static_cast<unsigned>(__all_sync(kFullWarp, lane != 7));
  own[5] = 0;
  if (lane < 16) {  // the halves diverge, each with its own mask
    own[5] = __ballot_sync(0x0000ffffu, lane % 2);
    __syncwarp(0x0000ffffu);
  } else {
    own[5] = __ballot_sync(0xffff0000u, lane % 2 == 0);
  }
}

TEST_CASE("votes count the lanes of their mask") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<unsigned> out(6 * 96);
    launch(vote, dim3(1), dim3(96), 0, out.data());
    for (std::size_t thread = 0; thread < 96; ++thread) {
      const unsigned* own = out.data() + 6 * thread;
      REQUIRE(own[0] == 0x49249249u);
      REQUIRE(own[1] == 1);
      REQUIRE(own[2] == 0);
      REQUIRE(own[3] == 1);
      REQUIRE(own[4] == 0);
      REQUIRE(own[5] == (thread % 32 < 16 ? 0x0000aaaau : 0x55550000u));
    }
  }
}

__global__ void count(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  const int counted = __syncthreads_count(t < 10);
  const int any = __syncthreads_or(t == 40), none = __syncthreads_or(0);
  const int all = __syncthreads_and(t < 50), most = __syncthreads_and(t != 49);
  out[t] = counted * 10000 + any * 1000 + none * 100 + all * 10 + most;
}

TEST_CASE("barriers count over blocks that are no multiple of a warp") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<int> out(50);
    launch(count, dim3(1), dim3(50), 0, out.data());
    REQUIRE(out == std::vector<int>(50, 101010));
  }
}

__global__ void turn_around(const float* in, float* out, int turns) {
  gpu::SharedMemory memory;
  float* row = memory.take<float>(64);
  float* other = memory.take<float>(64, 128);
  const unsigned t = threadIdx.x;
  row[t] = in[blockIdx.x * 64 + t];
  for (int turn = 0; turn < turns; ++turn) {
    __syncthreads();
    other[t] = row[63 - t];
    __syncthreads();
    row[t] = other[t];
  }
  out[blockIdx.x * 64 + t] = row[t];
}

TEST_CASE("data cross a block through dynamic shared memory") {
  std::vector<float> in(5 * 64);
  std::iota(in.begin(), in.end(), 0.0f);
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<float> out(in.size());
    launch(turn_around, dim3(5), dim3(64), 512, in.data(), out.data(), 3);
    for (std::size_t i = 0; i < in.size(); ++i) REQUIRE(out[i] == in[i / 64 * 64 + 63 - i % 64]);
  }
}

__global__ void stage(const uint4* in, uint4* out, int rounds) {
  TESSERA_SHARED(uint4, buffers, [2][32]);
  const unsigned t = threadIdx.x;
  const auto fetch = [&](int round) {
    gpu::copy_async(&buffers[round % 2][t], &in[round * 32 + t], round % 3 == 2 ? 6 : 16);
    gpu::copy_async_commit();
  };
  fetch(0);
  for (int round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) fetch(round + 1);
    round + 1 < rounds ? gpu::copy_async_wait<1>() : gpu::copy_async_wait<0>();
    __syncthreads();
    out[round * 32 + t] = buffers[round % 2][31 - t];
    __syncthreads();
  }
}

TEST_CASE("asynchronous copies arrive in order of their groups, the rest filled with zeros") {
  const int rounds = 7;
  std::vector<uint4> in(rounds * 32), out(in.size());
  for (unsigned i = 0; i < in.size(); ++i) in[i] = {i, 2 * i, 3 * i, 4 * i};
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    launch(stage, dim3(1), dim3(32), 0, in.data(), out.data(), rounds);
    for (unsigned i = 0; i < in.size(); ++i) {
      const unsigned from = i / 32 * 32 + 31 - i % 32;
      const bool whole = i / 32 % 3 != 2;
      REQUIRE(out[i].x == from);
      REQUIRE(out[i].y == (whole ? 2 * from : (2 * from & 0xffffu)));
      REQUIRE(out[i].z == (whole ? 3 * from : 0));
      REQUIRE(out[i].w == (whole ? 4 * from : 0));
    }
  }
}

__global__ void use_atomics(int* integers, float* sum, unsigned long long* least) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&integers[0], i);
  atomicMax(&integers[1], i);
  atomicMin(&integers[2], -i);
  atomicOr(&integers[3], 1 << i % 20);
  if (atomicExch(&integers[4], 1) == 0) atomicAdd(&integers[5], 1);
  if (atomicCAS(&integers[6], 0, i + 1) == 0) atomicAdd(&integers[7], 1);
  atomicAdd(sum, 0.5f);
  atomicMin(least, static_cast<unsigned long long>(i) + 5);
}

TEST_CASE("atomics of all threads add up") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<int> integers(8, 0);
    float sum = 0;
    unsigned long long least = ~0ull;
    launch(use_atomics, dim3(4), dim3(64), 0, integers.data(), &sum, &least);
    REQUIRE(integers[0] == 255 * 128);
    REQUIRE(integers[1] == 255);
    REQUIRE(integers[2] == -255);
    REQUIRE(integers[3] == (1 << 20) - 1);
    REQUIRE(integers[5] == 1);
    REQUIRE(integers[6] != 0);
    REQUIRE(integers[7] == 1);
    REQUIRE(sum == 128.0f);
    REQUIRE(least == 5);
  }
}

__global__ void leave_early(int* out) {  // without barriers, threads may end early
  if (threadIdx.x % 2 == 0) return;
  if (threadIdx.x < 32) __syncwarp(0xaaaaaaaau);
  out[threadIdx.x] = 1;
}

TEST_CASE("threads may end early if no other thread waits for them") {
  std::vector<int> out(64, 0);
  launch(leave_early, dim3(1), dim3(64), 0, out.data());
  for (int i = 0; i < 64; ++i) REQUIRE(out[i] == i % 2);
}

TEST_CASE("several threads launch at once") {
  std::vector<std::thread> ranks;
  std::vector<std::vector<int>> results(4, std::vector<int>(2 * 128));
  for (std::vector<int>& result : results) {
    ranks.emplace_back([&result] {
      for (int turn = 0; turn < 5; ++turn) {
        launch(sum_twice<int>, dim3(2), dim3(128), 0, result.data());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::vector<int>& result : results) {
    REQUIRE(result == std::vector<int>(2 * 128, 128 * 127 * 64));
  }
}

TEST_CASE("threads that never wait share a stack, and barriers and collectives are counted") {
  emulation::reset_statistics();
  std::vector<int> blocks(300), threads(300);
  launch(write_coordinates, dim3(3), dim3(100), 0, blocks.data(), threads.data());
  REQUIRE(emulation::statistics().blocks == 3);
  REQUIRE(emulation::statistics().barriers == 0);
#if !defined(__SANITIZE_THREAD__)  // under which each thread has its own stack
  REQUIRE(emulation::statistics().switches == 0);
#endif
  emulation::reset_statistics();
  std::vector<int> out(256);
  launch(sum_twice<int>, dim3(2), dim3(128), 0, out.data());
  REQUIRE(emulation::statistics().barriers == 2 * 4);
  REQUIRE(emulation::statistics().collectives == 2 * 4 * 2 * (5 + 5 + 1));
}

}  // namespace
}  // namespace tessera
