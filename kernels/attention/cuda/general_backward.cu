// Attention's backward pass in plain multiply-adds (Dao 2023, algorithm 2, in two kernels).
//
// Scores are recomputed from logsumexp. dK and dV are sums over queries, dQ is a sum over keys. With
// one kernel for each, one thread sums every output element in a fixed order: 7 products instead of
// 5, and no atomics. A block of the first kernel serves all query heads that read its keys.
//
// Traffic per head: each kernel streams two of Q, dO, K, V once per 32 rows of the other two,
// mostly from L2.
#include "kernels/attention/cuda/general.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/attention/cuda/query_statistics.h"
#include "kernels/cuda/launch.h"

namespace tessera::cuda::attention {
namespace general {
namespace {

template <int kChannels>
constexpr std::size_t shared_bytes(int weights) {
  return sizeof(float) * (4 * Tile<kChannels>::kSize + weights * Weights::kSize);
}

template <typename T, int kChannels>
__global__ void __launch_bounds__(kThreads)
    key_value_gradient_kernel(BackwardArguments<T> x, Schedule schedule) {
  gpu::SharedMemory shared;
  const Tile<kChannels> keys(shared), values(shared), queries(shared), d_output(shared);
  const Weights weights(shared), d_scores(shared);
  const Extents& n = x.extents;
  const auto visit = [&](const KeyBlock& block, const KeyPiece& piece) {
    const int thread = unhoisted(static_cast<int>(threadIdx.x));
    const int lane = thread % 32, warp_row = thread / 32 * kRowsPerWarp;
    const int batch = block.batch, kv_head = block.kv_head, first_key = block.first_key;
    const int first_row = first_key + warp_row;  // the warp's
    load(keys, x.k.rows(batch, kv_head), first_key, n.keys, n.head_size);
    load(values, x.v.rows(batch, kv_head), first_key, n.keys, n.head_size);
    const bool has_rows = first_row < piece.end && first_row + kRowsPerWarp > piece.first;
    const TokenRange range = piece.queries;
    Outputs<kChannels> dk, dv;
    const int before = max(max(first_key, piece.first) - n.shift() - range.first, 0);
    for (int head = kv_head * n.group(); head < (kv_head + 1) * n.group(); ++head) {
      const QueryStatistics* const statistics = x.statistics_of(batch, head);
      for (int first_query = range.first + before / kColumns * kColumns; first_query < range.end;
           first_query += kColumns) {
        __syncthreads();  // all warps are done with the last tile
        load(queries, x.q.rows(batch, head), first_query, range.end, n.head_size);
        load(d_output, x.d_o.rows(batch, head), first_query, range.end, n.head_size);
        __syncthreads();
        if (!has_rows) continue;
        const int query = first_query + lane;
        const QueryStatistics of_query =
            query < range.end ? statistics[query] : QueryStatistics{INFINITY, 0.0f};
        float p[kRowsPerWarp], ds[kRowsPerWarp];
        multiply(p, keys.row(warp_row), queries, n.head_size);
        multiply(ds, values.row(warp_row), d_output, n.head_size);
#pragma unroll
        for (int i = 0; i < kRowsPerWarp; ++i) {
          const bool seen = first_row + i <= query + n.shift();
          p[i] = seen ? exp2f(p[i] * n.scale_log2() - of_query.logsumexp) : 0.0f;
          ds[i] = p[i] * (ds[i] - of_query.delta);
        }
        weights.write(p);
        d_scores.write(ds);
        __syncwarp();
        dv.add(weights, d_output);
        dk.add(d_scores, queries);
      }
    }
    dk.store(x.dk.rows(batch, kv_head), first_key, piece, n.head_size, n.scale);
    dv.store(x.dv.rows(batch, kv_head), first_key, piece, n.head_size, 1.0f);
  };
  for_each_piece<KeyBlock, KeyPiece, true>(schedule, kRows, n, x.runs, visit);
}

template <typename T, int kChannels>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(BackwardArguments<T> x, Schedule schedule) {
  gpu::SharedMemory shared;
  const Tile<kChannels> queries(shared), d_output(shared), keys(shared), values(shared);
  const Weights d_scores(shared);
  const Extents& n = x.extents;
  const auto visit = [&](const QueryBlock& block, const QueryPiece& piece) {
    const int thread = unhoisted(static_cast<int>(threadIdx.x));
    const int lane = thread % 32, warp_row = thread / 32 * kRowsPerWarp;
    const int batch = block.batch, head = block.head, kv_head = block.kv_head;
    const int first_query = block.first_query;
    const int first_row = first_query + warp_row;  // the warp's
    make_statistics<1>(x, unhoisted(batch), head, first_row + lane / 4, n.head_size);
    __syncwarp();
    load(queries, x.q.rows(batch, head), first_query, n.queries, n.head_size);
    load(d_output, x.d_o.rows(batch, head), first_query, n.queries, n.head_size);
    const auto has_rows = [&] {
      return first_row < piece.end && first_row + kRowsPerWarp > piece.first;
    };
    Outputs<kChannels> dq;
    const int visible = block.visible_keys(n, piece.end);
    for (int first_key = piece.first_key; first_key < visible; first_key += kColumns) {
      __syncthreads();  // all warps are done with the last tile
      load(keys, x.k.rows(unhoisted(batch), kv_head), first_key, visible, n.head_size);
      load(values, x.v.rows(unhoisted(batch), kv_head), first_key, visible, n.head_size);
      __syncthreads();
      if (!has_rows()) continue;
      float p[kRowsPerWarp], ds[kRowsPerWarp];
      multiply(p, queries.row(warp_row), keys, n.head_size);
      multiply(ds, d_output.row(warp_row), values, n.head_size);
      const QueryStatistics* const statistics = x.statistics_of(unhoisted(batch), head) + first_row;
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        // The first key of a tile is seen.
        const bool seen = first_key + lane <= first_row + i + n.shift();
        p[i] = seen ? exp2f(p[i] * n.scale_log2() - statistics[i].logsumexp) : 0.0f;
        ds[i] = p[i] * (ds[i] - statistics[i].delta);
      }
      d_scores.write(ds);
      __syncwarp();
      dq.add(d_scores, keys);
    }
    dq.store(x.dq.rows(batch, head), first_query, piece, n.head_size, n.scale);
  };
  for_each_piece<QueryBlock, QueryPiece, true>(schedule, kRows, n, x.runs, visit);
}

}  // namespace
}  // namespace general

void backward_general(const BackwardCall& call, const Tensor& statistics) {
  using namespace general;
  const Extents extents(call.q, call.k, call.scale);
  gpu::visit(call.q.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const BackwardArguments<T> arguments(call, statistics);
    const std::int64_t bytes = 2 * call.k.head_size * std::int64_t{sizeof(T)};
    const Schedule by_keys(extents.keys, kRows, call.k.batch * call.k.heads,
                           bytes * extents.queries * extents.group());
    const Schedule by_queries(extents.queries, kRows, call.q.batch * call.q.heads,
                              bytes * extents.keys / extents.group());
    visit_channels(extents.head_size, [&](auto channels) {
      constexpr int kChannels = decltype(channels)::kValue;
      check_shared_memory("attention_backward", extents.head_size, shared_bytes<kChannels>(2));
      if (extents.queries > 0) {
        gpu::launch(query_gradient_kernel<T, kChannels>, by_queries.blocks(), dim3(kThreads),
                    shared_bytes<kChannels>(1), gpu::stream(), arguments, by_queries);
      }
      gpu::launch(key_value_gradient_kernel<T, kChannels>, by_keys.blocks(), dim3(kThreads),
                  shared_bytes<kChannels>(2), gpu::stream(), arguments, by_keys);
    });
  });
}

}  // namespace tessera::cuda::attention
