#include <fmt/format.h>

#include "kernels/embedding/op.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {

void add_embedding_cases(CaseList& list) {
  const std::int64_t N = list.rows, V = list.model.vocab_size, C = list.model.width;
  const DType dtype = list.dtype;
  const std::string shape = fmt::format("{} of {} x {}", N, V, C);
  list.memory_bound("embedding_forward", shape, 2 * list.bytes(N, C), [=] {
    return [y = Tensor::empty({N, C}, dtype), table = noise({V, C}, dtype),
            ids = random_ids(N, V)] { embedding_forward(y, table, ids); };
  });
  // Rows without a token are written too.
  const double bytes = list.bytes(N, C) + CaseList::bytes(V, C, DType::f32);
  list.memory_bound("embedding_backward", shape, bytes, [=] {
    return [dtable = Tensor::empty({V, C}, DType::f32), dy = noise({N, C}, dtype),
            ids = random_ids(N, V)] { embedding_backward(dtable, dy, ids, Accumulate::no); };
  });
}

}  // namespace tessera
