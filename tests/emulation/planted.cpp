// planted NAME: runs a kernel with the bug NAME, which the sanitizers must report.
//
// Prints "not noticed" if the program reaches its end. tests.cmake has the expected reports.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/tensor_core.h"
#include "tests/emulation/launch.h"

namespace tessera {
namespace {

using test::kFullWarp;
using test::launch;

constexpr int kThreads = 128, kBlocks = 2, kCount = 200;  // the last threads have no element

enum class Bug {
  none,
  // For the address sanitizer.
  global_overrun,
  declared_overrun,
  carved_overrun,
  last_carved_overrun,
  underrun,
  stack_overflow,
  local_overrun,
  // For the undefined-behaviour sanitizer.
  misaligned_vector,
  misaligned_shared_vector,
  // For the thread sanitizer.
  read_before_barrier,
  write_before_barrier,
  same_words_by_all_warps,
  no_warp_barrier,
  shuffle_as_barrier,
  same_word_by_all_blocks,
  same_word_by_distant_blocks,
  count_without_atomics,
  no_fence_before_count,
  no_fence_after_count,
  vector_stores,
  refill_too_early,
};

// Sums of blocks, the total by the last block to finish, and each block's elements reversed.
template <Bug bug>
__global__ void kernel(const float* in, float* sums, float* turned, int* count, float* total) {
  TESSERA_SHARED(float, partial, [4]);
  TESSERA_SHARED(float, row, [kThreads]);
  TESSERA_SHARED(uint4, staged, [kThreads]);
  gpu::SharedMemory memory;
  float* first = memory.take<float>(32);
  float* second = memory.take<float>(32);
  const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
  const int i = static_cast<int>(blockIdx.x) * kThreads + t;

  float value = i < kCount || bug == Bug::global_overrun ? in[i] : 0.0f;
  if (t < 32) first[t] = second[t] = 1;
  if (t == 0) {
    if (bug == Bug::declared_overrun) *(row + kThreads + warp) = 1;
    if (bug == Bug::carved_overrun) first[32] = 1;
    if (bug == Bug::last_carved_overrun) second[32] = 1;
    if (bug == Bug::underrun) second[-1] = 1;
  }
  if constexpr (bug == Bug::stack_overflow) {
    volatile float large[100000];
    large[t] = value;
    value = large[t];
  }
  if constexpr (bug == Bug::local_overrun) {
    volatile float few[4];
    volatile float* beyond = few + 3 + (t == 0 ? 1 : 0);
    *beyond = value;
    value = *beyond;
  }
  if (bug == Bug::misaligned_vector) value += reinterpret_cast<const float4*>(in + 1)->x;
  if (bug == Bug::misaligned_shared_vector) value += reinterpret_cast<const float4*>(partial)->x;

  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, distance);
  }
  if (lane == 0) partial[warp] = value;
  row[t] = static_cast<float>(i);
  if (bug != Bug::read_before_barrier) __syncthreads();
  float sum = partial[0] + partial[1] + partial[2] + partial[3];
  const float opposite = row[kThreads - 1 - t];
  if (bug == Bug::write_before_barrier) row[t] = sum;
  if (bug == Bug::same_words_by_all_warps) first[lane] = sum;

  if (warp == 0) {
    second[lane] = sum;
    if (bug == Bug::shuffle_as_barrier) {
      sum = __shfl_sync(kFullWarp, sum, 0);
    } else if (bug != Bug::no_warp_barrier) {
      __syncwarp();
    }
    sum = second[lane ^ 1];
  }
  __syncthreads();
  for (int round = 0; round < 2; ++round) {
    gpu::copy_async(&staged[t], in + t / 4 * 4, 16);
    gpu::copy_async_commit();
    gpu::copy_async_wait<0>();
    __syncthreads();
    if (staged[kThreads - 1 - t].x == 1) sum += 0;
    if (bug != Bug::refill_too_early) __syncthreads();
  }
  if (bug == Bug::vector_stores) *reinterpret_cast<float4*>(turned + t / 8 * 4) = float4{};
  if (t == 0) sums[blockIdx.x] = sum;
  if (bug == Bug::same_word_by_all_blocks && t == 0) sums[0] = sum;
  if (bug == Bug::same_word_by_distant_blocks && t == 0 && blockIdx.x % 3 == 0) sums[0] = sum;
  if (bug == Bug::count_without_atomics) ++*count;
  atomicAdd(count + 1, 1);
  if (t == 0) {
    if (bug != Bug::no_fence_before_count) __threadfence();
    const bool is_last = atomicAdd(count + 2, 1) == static_cast<int>(gridDim.x) - 1;
    if (bug != Bug::no_fence_after_count) __threadfence();
    if (is_last) {
      for (unsigned block = 0; block < gridDim.x; ++block) *total += sums[block];
    }
  }
  if (i < kCount) turned[i] = opposite;
}

template <Bug bug>
void run() {
  const int blocks = bug == Bug::same_word_by_distant_blocks ? 16 : kBlocks;
  // Each array ends at the end of its allocation and begins at a multiple of 16.
  const auto in = std::make_unique<float[]>(kCount), turned = std::make_unique<float[]>(kCount);
  std::vector<float> sums(static_cast<std::size_t>(blocks));
  std::vector<int> count(3);
  float total = 0;
  for (int i = 0; i < kCount; ++i) in[static_cast<std::size_t>(i)] = static_cast<float>(i);
  launch(kernel<bug>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 256, in.get(),
         sums.data(), turned.get(), count.data(), &total);
  const bool is_right =
      sums[0] == 127 * 64 && count[1] == blocks * kThreads && total == sums[0] + sums[1];
  if (bug == Bug::none && !is_right) {
    std::puts("wrong sums");
  }
}

#define BUG(name) \
  { #name, &run < Bug::name> }
const std::map<std::string, void (*)()> kBugs = {
    BUG(none),
    BUG(global_overrun),
    BUG(declared_overrun),
    BUG(carved_overrun),
    BUG(last_carved_overrun),
    BUG(underrun),
    BUG(stack_overflow),
    BUG(local_overrun),
    BUG(misaligned_vector),
    BUG(misaligned_shared_vector),
    BUG(read_before_barrier),
    BUG(write_before_barrier),
    BUG(same_words_by_all_warps),
    BUG(no_warp_barrier),
    BUG(shuffle_as_barrier),
    BUG(same_word_by_all_blocks),
    BUG(same_word_by_distant_blocks),
    BUG(count_without_atomics),
    BUG(no_fence_before_count),
    BUG(no_fence_after_count),
    BUG(vector_stores),
    BUG(refill_too_early),
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const auto bug = argc == 2 ? tessera::kBugs.find(argv[1]) : tessera::kBugs.end();
  if (bug == tessera::kBugs.end()) {
    std::puts("usage: planted BUG");
    return 2;
  }
  bug->second();
  std::puts("not noticed");
  return 0;
}
