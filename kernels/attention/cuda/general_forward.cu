// Attention's forward pass in plain multiply-adds: the version to read first.
//
// Online softmax over tiles of 32 queries by 32 keys (Milakov, Gimelshein 2018; Dao et al. 2022,
// algorithm 1).
//
// Traffic per head: Q and O once, K and V once per 32 queries (mostly from L2). Work: 2 Tq Tkv d
// multiply-adds, half of it if causal, against a shared-memory bound of about two thirds of the
// chip's rate of f32 (general.h).
#include "kernels/attention/cuda/general.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace tessera::cuda::attention {
namespace general {
namespace {

/// A warp's part of the softmax: for each of 8 rows the maximum so far, in base 2, and the lane's
/// share of the sum so far.
struct OnlineSoftmax {
  float maximum[kRowsPerWarp], sum[kRowsPerWarp];

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      maximum[i] = -INFINITY;
      sum[i] = 0.0f;
    }
  }

  /// Turns scores into weights relative to the new maximum, and corrects the outputs so far.
  template <int kChannels>
  __device__ void update(float (&score)[kRowsPerWarp], Outputs<kChannels>& outputs) {
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const float raised = fmaxf(maximum[i], gpu::warp_reduce<gpu::Maximum>(score[i]));
      const float correction = exp2f(maximum[i] - raised);
      maximum[i] = raised;
      score[i] = exp2f(score[i] - raised);
      sum[i] = fmaf(sum[i], correction, score[i]);
#pragma unroll
      for (float& value : outputs.values[i]) value *= correction;
    }
  }
};

template <int kChannels>
constexpr std::size_t shared_bytes() {
  return sizeof(float) * (3 * Tile<kChannels>::kSize + Weights::kSize);
}

template <typename T, int kChannels>
__global__ void __launch_bounds__(kThreads, 2)
    forward_kernel(ForwardArguments<T> x, Schedule schedule) {
  gpu::SharedMemory shared;
  const Tile<kChannels> queries(shared), keys(shared), values(shared);
  const Weights weights(shared);
  const Extents& n = x.extents;
  const auto visit = [&](const QueryBlock& block, const QueryPiece& piece) {
    const int thread = unhoisted(static_cast<int>(threadIdx.x));
    const int lane = thread % 32, warp_row = thread / 32 * kRowsPerWarp;
    const int batch = block.batch, head = block.head, kv_head = block.kv_head;
    const int first_query = block.first_query;
    const int first_row = first_query + warp_row;  // the warp's
    load(queries, x.q.rows(batch, head), first_query, n.queries, n.head_size);
    const auto has_rows = [&] {
      return first_row < piece.end && first_row + kRowsPerWarp > piece.first;
    };
    OnlineSoftmax softmax;
    Outputs<kChannels> outputs;
    const int visible = block.visible_keys(n, piece.end);
    for (int first_key = piece.first_key; first_key < visible; first_key += kColumns) {
      __syncthreads();  // all warps are done with the last tile
      load(keys, x.k.rows(batch, kv_head), first_key, visible, n.head_size);
      load(values, x.v.rows(batch, kv_head), first_key, visible, n.head_size);
      __syncthreads();
      if (!has_rows()) continue;
      float score[kRowsPerWarp];
      multiply(score, queries.row(warp_row), keys, n.head_size);
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        const bool seen = first_key + lane <= first_row + i + n.shift();
        score[i] = seen ? score[i] * n.scale_log2() : -INFINITY;
      }
      softmax.update(score, outputs);
      weights.write(score);
      __syncwarp();
      outputs.add(weights, values);
      __syncwarp();
    }
    if (!has_rows()) return;
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const float sum = gpu::warp_reduce<gpu::Sum>(softmax.sum[i]);
      const int query = first_row + i;
#pragma unroll
      for (float& value : outputs.values[i]) value /= sum;
      if (lane == 0 && query >= piece.first && query < piece.end) {
        x.logsumexp[static_cast<std::int64_t>(block.all_head) * n.queries + query] =
            (softmax.maximum[i] + log2f(sum)) * kLn2;
      }
    }
    outputs.store(x.o.rows(batch, head), first_query, piece, n.head_size, 1.0f);
  };
  for_each_piece<QueryBlock, QueryPiece, true>(schedule, kRows, n, x.runs, visit);
}

}  // namespace
}  // namespace general

void forward_general(const ForwardCall& call) {
  const Extents extents(call.q, call.k, call.scale);
  gpu::visit(call.q.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const ForwardArguments<T> arguments(call);
    const Schedule schedule(
        extents.queries, general::kRows, call.q.batch * call.q.heads,
        2 * call.k.tokens * call.k.head_size * std::int64_t{sizeof(T)} / extents.group());
    general::visit_channels(extents.head_size, [&](auto channels) {
      constexpr int kChannels = decltype(channels)::kValue;
      check_shared_memory("attention_forward", extents.head_size,
                          general::shared_bytes<kChannels>());
      gpu::launch(general::forward_kernel<T, kChannels>, schedule.blocks(), dim3(general::kThreads),
                  general::shared_bytes<kChannels>(), gpu::stream(), arguments, schedule);
    });
  });
}

}  // namespace tessera::cuda::attention
