// Statistics of every query for the backward passes.
//
// Per query: its logsumexp in base 2, and D = sum(dO * O), which equals the sum over keys of P dP
// (Dao 2023, section 3.1.2). The kernel reads O and dO once and writes 8 bytes per query. Eight lanes
// share a row; each reads sixteen bytes at a time.
#include "kernels/attention/cuda/arguments.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"

namespace tessera::cuda::attention {
namespace {

constexpr int kLanesPerRow = 8, kRowsPerBlock = gpu::kThreads / kLanesPerRow;

/// The lane's part of the dot product of two rows.
template <typename T>
__device__ float share(const T* x, const T* y, int count, bool vectors) {
  constexpr int kWidth = gpu::Vector<T>::kSize;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerRow;
  float sum = 0.0f;
  int done = 0;
  if (vectors) {
    done = count / kWidth * kWidth;
    for (int c = lane * kWidth; c < done; c += kLanesPerRow * kWidth) {
      const auto a = gpu::Vector<T>::load(x + c), b = gpu::Vector<T>::load(y + c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum = fmaf(a.values[i], b.values[i], sum);
    }
  }
  for (int c = done + lane; c < count; c += kLanesPerRow) {
    sum = fmaf(gpu::load(x[c]), gpu::load(y[c]), sum);
  }
  return sum;
}

// Neighbouring rows of threads are neighbouring heads of a token, which are adjacent in memory.
template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    statistics_kernel(BackwardArguments<T> x, std::int64_t rows, bool vectors) {
  const Extents& n = x.extents;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanesPerRow;
  const int padded = padded_queries(n.queries);
  const int head = static_cast<int>(row % n.heads);
  const int query = static_cast<int>(row / n.heads % padded);
  const int batch = static_cast<int>(row / n.heads / padded);
  const bool exists = row < rows && query < n.queries;
  float delta = exists ? share(x.o.rows(batch, head)[query], x.d_o.rows(batch, head)[query],
                               n.head_size, vectors)
                       : 0.0f;
#pragma unroll
  for (int distance = kLanesPerRow / 2; distance > 0; distance /= 2) {
    delta += __shfl_xor_sync(gpu::kFullWarp, delta, distance);
  }
  if (row >= rows || threadIdx.x % kLanesPerRow != 0) return;
  const std::int64_t at = static_cast<std::int64_t>(batch) * n.heads + head;
  x.statistics[at * padded + query] = {
      exists ? x.logsumexp[at * n.queries + query] * kLog2E : INFINITY, delta};
}

}  // namespace

Tensor query_statistics(const BackwardCall& call) {
  const Extents extents(call.q, call.k, call.scale);
  const std::int64_t rows = call.q.batch * call.q.heads * padded_queries(extents.queries);
  const CategoryScope scope(Category::workspace);
  const Tensor statistics = Tensor::empty({rows + kStatisticsSlack, 2}, DType::f32);
  if (rows == 0) return statistics;
  gpu::visit(call.q.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool vectors = has_aligned_rows(call.o) && has_aligned_rows(call.d_o);
    gpu::launch(statistics_kernel<T>, dim3(gpu::blocks_for(rows, kRowsPerBlock, INT32_MAX)),
                dim3(gpu::kThreads), 0, gpu::stream(), BackwardArguments<T>(call, statistics), rows,
                vectors);
  });
  return statistics;
}

}  // namespace tessera::cuda::attention
