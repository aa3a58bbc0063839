#include "kernels/attention/cuda/query_statistics.h"

#include "runtime/category.h"

namespace tessera::cuda::attention {

Tensor memory_for_statistics(const Heads& q) {
  const std::int64_t rows = q.batch * q.heads * padded_queries(static_cast<int>(q.tokens));
  const CategoryScope scope(Category::workspace);
  return Tensor::empty({rows + kStatisticsSlack, 2}, DType::f32);
}

}  // namespace tessera::cuda::attention
