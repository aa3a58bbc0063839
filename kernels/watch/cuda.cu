// Readings are integer maxima and sums: the order of blocks does not matter.
//
// A block takes a tile of kTile queries of one head and visits the keys in tiles. A thread has 4 x 4 scores
// in registers. Channels come through shared memory, kDepth at a time. Traffic: each query once, and
// each key once for every kTile queries. The products are f32: a watched step is rare.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/magnitude.h"
#include "kernels/cuda/numeric.h"
#include "kernels/watch/op.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

constexpr int kTile = 64, kDepth = 16, kSide = 4;
constexpr int kTeams = kTile / kSide;  // threads along a side of a tile
static_assert(kTeams * kTeams == kThreads);
constexpr int kRouterWarps = 4;  // of a block: a token each

/// The bits of x, or 0 if x is negative.
__device__ int bits_from_zero(float x) {
  return x < 0.0f ? 0 : gpu::bits_of_magnitude(x);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    magnitude_kernel(float* largest, const T* x, std::int64_t count) {
  int most = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    most = max(most, gpu::bits_of_magnitude(gpu::load(x[i])));
  }
  gpu::raise(largest, most);
}

/// Heads in memory, as the kernel reads them.
template <typename T>
struct View {
  const T* first;
  std::int64_t batch_stride, token_stride;
  int tokens, head_size;

  explicit View(const Heads& x)
      : first(x.tensor.data<T>() + x.offset),
        batch_stride(x.batch_stride),
        token_stride(x.token_stride),
        tokens(static_cast<int>(x.tokens)),
        head_size(static_cast<int>(x.head_size)) {}

  /// The rows of one head.
  __device__ const T* rows(int batch, int head) const {
    return first + batch * batch_stride + head * head_size;
  }
};

/// Channels [channel, channel + kDepth) of kTile rows from `row` on; zeros outside.
template <typename T>
__device__ void load_channels(float (&to)[kDepth][kTile], const T* rows, const View<T>& x, int row,
                              int channel) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
    const int r = i / kDepth, c = i % kDepth;
    const bool inside = row + r < x.tokens && channel + c < x.head_size;
    to[c][r] = inside ? gpu::load(rows[(row + r) * x.token_stride + channel + c]) : 0.0f;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    logit_kernel(float* largest, View<T> q, View<T> k, const std::int32_t* first_keys, int heads,
                 int group, float scale) {
  TESSERA_SHARED(float, queries, [kDepth][kTile]);
  TESSERA_SHARED(float, keys, [kDepth][kTile]);
  const int batch = static_cast<int>(blockIdx.x) / heads,
            head = static_cast<int>(blockIdx.x) % heads;
  const int first_query = static_cast<int>(blockIdx.y) * kTile, shift = k.tokens - q.tokens;
  const T* const query_rows = q.rows(batch, head);
  const T* const key_rows = k.rows(batch, head / group);
  const std::int32_t* const first =
      first_keys == nullptr ? nullptr : first_keys + static_cast<std::int64_t>(batch) * q.tokens;
  const int own_query = static_cast<int>(threadIdx.x) / kTeams * kSide;
  const int own_key = static_cast<int>(threadIdx.x) % kTeams * kSide;
  const int visible = min(first_query + kTile, q.tokens) + shift;
  int most = 0;
  for (int first_key = first == nullptr ? 0 : first[first_query]; first_key < visible;
       first_key += kTile) {
    float score[kSide][kSide] = {};
    for (int channel = 0; channel < q.head_size; channel += kDepth) {
      __syncthreads();  // the readers of the last channels are done
      load_channels(queries, query_rows, q, first_query, channel);
      load_channels(keys, key_rows, k, first_key, channel);
      __syncthreads();
      for (int c = 0; c < kDepth; ++c) {
#pragma unroll
        for (int i = 0; i < kSide; ++i) {
#pragma unroll
          for (int j = 0; j < kSide; ++j) {
            score[i][j] = fmaf(queries[c][own_query + i], keys[c][own_key + j], score[i][j]);
          }
        }
      }
    }
    for (int i = 0; i < kSide; ++i) {
      const int query = first_query + own_query + i;
      if (query >= q.tokens) break;
      for (int j = 0; j < kSide; ++j) {
        const int key = first_key + own_key + j;
        const bool seen = key <= query + shift && (first == nullptr || key >= first[query]);
        if (seen) most = max(most, bits_from_zero(scale * score[i][j]));
      }
    }
  }
  gpu::raise(largest + head, most);
}

/// A warp has a token, its lanes share the experts.
template <typename T>
__global__ void __launch_bounds__(32 * kRouterWarps)
    entropy_kernel(unsigned long long* sum, const T* logits, std::int64_t tokens, int experts) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / 32;
  if (n >= tokens) return;
  const T* const row = logits + n * experts;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float maximum = -INFINITY, total = 0.0f, weighted = 0.0f;
  for (int e = lane; e < experts; e += 32) maximum = fmaxf(maximum, gpu::load(row[e]));
  maximum = gpu::warp_reduce<gpu::Maximum>(maximum);
  for (int e = lane; e < experts; e += 32) {
    const float d = gpu::load(row[e]) - maximum, power = expf(d);
    total += power;
    weighted += d * power;
  }
  total = gpu::warp_reduce<gpu::Sum>(total);
  weighted = gpu::warp_reduce<gpu::Sum>(weighted);
  const double entropy = static_cast<double>(logf(total)) - weighted / total;
  if (lane != 0 || !isfinite(entropy)) return;
  const auto units = static_cast<std::int64_t>(rint(entropy / kEntropyUnit));
  atomicAdd(sum, static_cast<unsigned long long>(units));
  atomicAdd(sum + 1, 1ull);
}

}  // namespace

void raise_to_magnitude(Out largest, const Tensor& x) {
  if (x.numel() == 0) return;
  gpu::visit(x.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(magnitude_kernel<T>, dim3(gpu::blocks_for(x.numel(), 8 * kThreads, 4096)),
                dim3(kThreads), 0, gpu::stream(), largest.data<float>(), x.data<T>(), x.numel());
  });
}

void raise_to_attention_logit(Out largest, const Heads& q, const Heads& k, float scale,
                              const Tensor& first_key) {
  if (q.batch == 0 || q.tokens == 0) return;
  gpu::visit(q.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const dim3 blocks(static_cast<unsigned>(q.batch * q.heads), gpu::blocks_for(q.tokens, kTile));
    gpu::launch(logit_kernel<T>, blocks, dim3(kThreads), 0, gpu::stream(), largest.data<float>(),
                View<T>(q), View<T>(k), gpu::pointer<std::int32_t>(first_key),
                static_cast<int>(q.heads), static_cast<int>(q.heads / k.heads), scale);
  });
}

void add_router_entropy(Out sum, const Tensor& logits) {
  if (logits.size(0) == 0) return;
  gpu::visit(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(entropy_kernel<T>, dim3(gpu::blocks_for(logits.size(0), kRouterWarps, INT32_MAX)),
                dim3(32 * kRouterWarps), 0, gpu::stream(),
                reinterpret_cast<unsigned long long*>(sum.data<std::int64_t>()), logits.data<T>(),
                logits.size(0), static_cast<int>(logits.size(1)));
  });
}

}  // namespace tessera::cuda
