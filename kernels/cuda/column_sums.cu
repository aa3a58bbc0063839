// The second step of sums over rows: adding the chunks' lines.
//
// Traffic: one float per chunk and column, mostly from the second-level cache. A block takes 32
// columns of one vector of sums. Its thread (x, y) adds lines y, y + 32, ... of column x, and the
// first warp adds the 32 groups. Latency matters here, not bandwidth: with at most some 500 chunks,
// all loads of a thread are in flight at once.
#include "kernels/cuda/column_sums.h"

namespace tessera::gpu {
namespace {

constexpr int kGroups = 32;
constexpr int kMost = 2;

/// The destination of a vector of sums, or null.
struct Target {
  void* data;
  DType dtype;

  __device__ void add(std::int64_t column, float total, bool accumulate) const {
    const auto add_to = [=](auto& sum) { store(sum, accumulate ? load(sum) + total : total); };
    switch (dtype) {
      case DType::bf16:
        return add_to(static_cast<bfloat16*>(data)[column]);
      case DType::f16:
        return add_to(static_cast<float16*>(data)[column]);
      default:
        return add_to(static_cast<float*>(data)[column]);
    }
  }
};
struct Targets {
  Target of[kMost];
};

__global__ void __launch_bounds__(32 * kGroups)
    add_lines_kernel(Targets targets, const float* lines, std::int64_t chunks, std::int64_t stride,
                     std::int64_t columns, bool accumulate) {
  TESSERA_SHARED(float, groups, [kGroups][32]);
  const Target target = blockIdx.y == 0 ? targets.of[0] : targets.of[1];
  if (target.data == nullptr) return;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float* const first = lines + blockIdx.y * stride + column;
  const std::int64_t to_next_chunk = gridDim.y * stride;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 16
    for (std::int64_t chunk = threadIdx.y; chunk < chunks; chunk += kGroups) {
      sum += first[chunk * to_next_chunk];
    }
  }
  groups[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  float total = 0.0f;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) total += groups[group][threadIdx.x];
  target.add(column, total, accumulate);
}

}  // namespace

void add_lines(std::initializer_list<Tensor> sums, const PartialLines& lines,
               Accumulate accumulate) {
  Targets targets{};
  std::int64_t columns = 0;
  int count = 0;
  for (const Tensor& sum : sums) {
    if (sum.defined()) {
      targets.of[count] = {sum.raw(), sum.dtype()};
      columns = sum.numel();
    }
    ++count;
  }
  if (columns == 0) return;
  launch(add_lines_kernel, dim3(blocks_for(columns, 32, INT32_MAX), static_cast<unsigned>(count)),
         dim3(32, kGroups), 0, stream(), targets, lines.data(), lines.chunks, lines.stride, columns,
         accumulate == Accumulate::yes);
}

}  // namespace tessera::gpu
