// Finds the runs of first_key: a thread for each token, by bisection. Traffic: 4 bytes a query read, 8 a query and 16
// a key written.
#include "kernels/attention/cuda/runs.h"

#include "kernels/attention/cuda/arguments.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/launch.h"
#include "runtime/category.h"

namespace tessera::cuda::attention {
namespace {

/// The first index in [low, high) with a first key beyond `key`, or high.
__device__ int first_beyond(const std::int32_t* first_keys, int low, int high, int key) {
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (first_keys[middle] > key) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

__device__ QueryRun run_of_query(const std::int32_t* first_keys, const Extents& n, int query) {
  const int key = first_keys[query];
  return {min(max(key, 0), query + n.shift()), first_beyond(first_keys, query + 1, n.queries, key)};
}

/// Keys before the first query's first key are seen by no query.
__device__ KeyRun run_of_key(const std::int32_t* first_keys, const Extents& n, int key) {
  const int end_query = first_beyond(first_keys, 0, n.queries, key);
  const int end = end_query < n.queries ? first_keys[end_query] : n.keys;
  if (end_query == 0) return {end, 0, 0, 0};
  return {end, max(first_keys[end_query - 1] - n.shift(), 0), end_query, 0};
}

/// `fault`: where a number that breaks the rules is reported, or none.
__global__ void __launch_bounds__(gpu::kThreads)
    runs_kernel(Runs runs, const std::int32_t* first_key, Extents n, FaultSlot fault) {
  const std::int64_t place = std::int64_t{blockIdx.x} * gpu::kThreads + threadIdx.x;
  const auto batch = place / n.keys;
  const int token = static_cast<int>(place % n.keys);
  if (batch >= n.batch) return;
  const std::int32_t* const own = first_key + batch * n.queries;
  if (runs.keys != nullptr) runs.keys[place] = run_of_key(own, n, token);
  if (token >= n.queries) return;
  const std::int64_t query = batch * n.queries + token;
  runs.queries[query] = run_of_query(own, n, token);
  if (fault.word == nullptr) return;
  const int least = token == 0 ? 0 : own[token - 1];
  if (own[token] < least || own[token] > token + n.shift()) gpu::report(fault, query);
}

}  // namespace

Runs RunTensors::runs() const {
  return {reinterpret_cast<QueryRun*>(gpu::pointer<std::int32_t>(queries)),
          reinterpret_cast<KeyRun*>(gpu::pointer<std::int32_t>(keys))};
}

RunTensors find_runs(Pass pass, const Tensor& first_key, const Heads& q, const Heads& k) {
  if (!first_key.defined()) return {};
  const CategoryScope scope(Category::workspace);
  RunTensors found;
  found.queries = Tensor::empty({q.batch, q.tokens, 2}, DType::i32);
  FaultSlot fault;
  if (pass == Pass::forward) {
    fault = fault_slot(current_stream(),
                       "attention_forward: the number at position {} of first_key is below the one "
                       "before it, or beyond its query");
  } else {
    found.keys = Tensor::empty({k.batch, k.tokens, 4}, DType::i32);
  }
  gpu::launch(runs_kernel, dim3(gpu::blocks_for(k.batch * k.tokens, gpu::kThreads)),
              dim3(gpu::kThreads), 0, gpu::stream(), found.runs(), first_key.data<std::int32_t>(),
              Extents(q, k, 1.0f), fault);
  return found;
}

}  // namespace tessera::cuda::attention
