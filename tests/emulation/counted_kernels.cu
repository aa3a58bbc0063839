#include <utility>

#include "kernels/cuda/tensor_core.h"
#include "tests/emulation/counted_kernels.h"
#include "tests/emulation/launch.h"

namespace tessera::test {
namespace {

constexpr int kHalf = 2048;  // results lie behind it

template <Pattern pattern>
__global__ void kernel(float* data) {
  const int lane = static_cast<int>(threadIdx.x);
  float* const out = data + kHalf;
  if constexpr (pattern == Pattern::neighbours) out[lane] = data[lane] + 1.0f;
  if constexpr (pattern == Pattern::eighths) out[lane] = data[8 * lane];
  if constexpr (pattern == Pattern::vectors) {
    float4 vector = reinterpret_cast<const float4*>(data)[lane];
    vector.x += 1.0f;
    reinterpret_cast<float4*>(out)[lane] = vector;
  }
  if constexpr (pattern == Pattern::fields) {
    const float x = data[lane];
    reinterpret_cast<float4*>(out)[lane] = {x, x + 1.0f, x + 2.0f, x + 3.0f};
  }
  if constexpr (pattern == Pattern::halves) {
    out[lane] = static_cast<float>(reinterpret_cast<const bfloat16*>(data)[lane]);
  }
  if constexpr (pattern == Pattern::shifted) out[lane] = data[lane + 1];
  if constexpr (pattern == Pattern::alternating) out[lane] = data[lane % 2 * 8];
  if constexpr (pattern == Pattern::same) out[lane] = data[5];
  if constexpr (pattern == Pattern::read_twice) {
    const float first = data[lane];
    __syncthreads();
    out[lane] = first + data[lane];
  }
  if constexpr (pattern == Pattern::read_what_it_wrote) {
    data[lane] = 1.0f;
    __syncthreads();
    out[lane] = data[31 - lane];
  }
  if constexpr (pattern == Pattern::early_exit) {
    out[lane] = data[lane];
    if (lane >= 20) return;
    out[lane + 32] = data[lane + 32];
  }
  if constexpr (pattern == Pattern::uneven_loop) {
    float sum = 0.0f;
    for (int i = 0; i <= lane % 4; ++i) sum += data[32 * i + lane];
    out[lane] = sum;
  }
  if constexpr (pattern == Pattern::uneven_chain) {
    for (int i = 0; i <= lane % 4; ++i) data[32 * i + 32 + lane] = data[32 * i + lane];
    out[lane] = 1.0f;
  }
  if constexpr (pattern == Pattern::uneven_shift) {
    for (int i = 0; i <= lane % 4; ++i) data[32 * i + lane] = data[32 * i + 32 + lane];
    out[lane] = 1.0f;
  }
  if constexpr (pattern == Pattern::local_array) {
    volatile float local[8];
    for (int i = 0; i < 8; ++i) local[i] = static_cast<float>(i);
    out[lane] = local[lane % 8];
  }
  if constexpr (pattern == Pattern::atomics) {
    atomicAdd(reinterpret_cast<int*>(data), 1);
    atomicAdd(reinterpret_cast<int*>(data) + lane, 1);
  }
  if constexpr (pattern == Pattern::products) {
    float c[4] = {};
    const unsigned a[4] = {}, b[2] = {};
    for (int i = 0; i < 3; ++i) gpu::multiply_accumulate<bfloat16>(c, a, b);
    out[lane] = c[0];
  }
}

template <Pattern pattern>
__global__ void shared_kernel(float* data) {
  TESSERA_SHARED(float4, vectors, [256]);
  const int lane = static_cast<int>(threadIdx.x);
  float* const shared = &vectors[0].x;
  if constexpr (pattern == Pattern::shared_rows) shared[lane] = 1.0f;
  if constexpr (pattern == Pattern::shared_even) shared[2 * lane] = 1.0f;
  if constexpr (pattern == Pattern::shared_column) shared[32 * lane] = 1.0f;
  if constexpr (pattern == Pattern::shared_same) data[lane] = shared[7];
  if constexpr (pattern == Pattern::shared_vectors) {
    vectors[lane] = reinterpret_cast<const float4*>(data)[lane];
  }
  if constexpr (pattern == Pattern::async_copies) {
    gpu::copy_async(shared + 4 * lane, data + 4 * lane, lane == 31 ? 8 : 16);
    gpu::copy_async_commit();
    gpu::copy_async_wait<0>();
  }
}

template <Pattern pattern>
emulation::Statistics run(float* data) {
  constexpr bool kShared =
      (pattern >= Pattern::shared_rows && pattern <= Pattern::shared_vectors) ||
      pattern == Pattern::async_copies;
  emulation::Statistics before = emulation::statistics();
  if constexpr (kShared) {
    launch(shared_kernel<pattern>, dim3(1), dim3(32), 0, data);
  } else {
    launch(kernel<pattern>, dim3(1), dim3(32), 0, data);
  }
  emulation::Statistics counts = emulation::statistics();
  for (const emulation::Counter& counter : emulation::counters()) {
    counter.of(counts) -= counter.of(before);
  }
  return counts;
}

template <std::size_t... pattern>
emulation::Statistics run(std::size_t which, float* data, std::index_sequence<pattern...>) {
  using Run = emulation::Statistics (*)(float*);
  constexpr Run kRuns[] = {run<static_cast<Pattern>(pattern)>...};
  return kRuns[which](data);
}

}  // namespace

emulation::Statistics run_pattern(Pattern pattern, float* data) {
  constexpr std::size_t kCount = static_cast<std::size_t>(Pattern::products) + 1;
  return run(static_cast<std::size_t>(pattern), data, std::make_index_sequence<kCount>());
}

}  // namespace tessera::test
