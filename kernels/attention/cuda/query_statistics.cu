// The statistics of all queries in a launch of its own. Traffic: 4 bytes an element of O and dO in 16
// bits, and 12 bytes a query.
#include "kernels/attention/cuda/query_statistics.h"

#include "kernels/cuda/early_launch.h"
#include "runtime/category.h"

namespace tessera::cuda::attention {
namespace {

constexpr int kThreads = 4 * kStatisticsPadding;  // four lanes a query

/// A block has kStatisticsPadding queries of a head.
template <typename T>
__global__ void __launch_bounds__(kThreads) statistics_kernel(const BackwardArguments<T> x) {
  gpu::wait_for_launch_ahead();
  const Extents& n = x.extents;
  const auto block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int blocks_of_head = padded_queries(n.queries) / kStatisticsPadding;
  const int all_head = block / blocks_of_head, first = block % blocks_of_head * kStatisticsPadding;
  make_statistics<gpu::Vector<T>::kSize>(x, all_head / n.heads, all_head % n.heads,
                                         first + thread / 4, n.head_size);
}

template <typename T>
void launch(const BackwardCall& call, const Tensor& statistics) {
  const std::int64_t blocks =
      call.q.batch * call.q.heads *
      (padded_queries(static_cast<int>(call.q.tokens)) / kStatisticsPadding);
  gpu::launch_early(statistics_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0,
                    gpu::stream(), BackwardArguments<T>(call, statistics));
}

}  // namespace

Tensor memory_for_statistics(const Heads& q) {
  const std::int64_t rows = q.batch * q.heads * padded_queries(static_cast<int>(q.tokens));
  const CategoryScope scope(Category::workspace);
  return Tensor::empty({rows + kStatisticsSlack, 2}, DType::f32);
}

void compute_statistics(const BackwardCall& call, const Tensor& statistics) {
  call.q.tensor.dtype() == DType::bf16 ? launch<bfloat16>(call, statistics)
                                       : launch<float16>(call, statistics);
}

}  // namespace tessera::cuda::attention
