// Attention's forward pass for one query over a cache of keys.
//
// One query is one block of rows per head, too little work for a GPU. So its keys are split over thread
// blocks (Flash-Decoding: Dao, Haziza, Massa, Sizov 2023). A block has one split of a key head (splits.h), and
// up to 8 of the query heads that read it. It knows all of its scores before it computes weights, so that no
// maximum runs.
//
// Traffic: K and V once for 8 query heads that share them. A split writes 4 d + 8 bytes for each of its
// query heads, and combine reads them: 3 % of K and V for heads of 128 in bf16 that share in fours.
#include "kernels/attention/cuda/launchers.h"
#include "kernels/attention/cuda/splits.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "runtime/category.h"

namespace tessera::cuda::attention {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
/// Neighbouring lanes that share a key, 16 bytes each; a thread block reads kGroups keys at once.
constexpr int kLanes = 8, kGroups = kThreads / kLanes;
/// Scores that a thread computes together: a query's values are read once for them.
constexpr int kKeysAtOnce = 4;
/// Query heads of a thread block, at most.
constexpr int kMostRows = 8;

/// A thread block's split, and its query heads: kRows, of which `rows` exist.
template <int kRows>
struct SplitBlock {
  int split, batch, kv_head, first_head, rows;

  __device__ SplitBlock(const Extents& n, const Splits& splits) {
    const int tiles = (n.group() + kRows - 1) / kRows, block = static_cast<int>(blockIdx.x);
    const int of_heads = block / splits.count, all_kv_head = of_heads / tiles;
    const int first_row = of_heads % tiles * kRows;
    split = block % splits.count;
    batch = all_kv_head / n.kv_heads, kv_head = all_kv_head % n.kv_heads;
    first_head = kv_head * n.group() + first_row;
    rows = min(kRows, n.group() - first_row);
  }
};

/// Shared memory. A lane reads four channels of a query at once, and its neighbours the next 16 bytes:
/// chunk c of a key, of kQuads quads, is multiplied by the queries' quads c, c + chunks, ...
template <typename T, int kRows>
struct Memory {
  static constexpr int kWidth = gpu::Vector<T>::kSize, kQuads = kWidth / 4;
  static constexpr int kColumns = kLanes * kWidth;  // that a warp sums at once
  int chunks;
  float *queries, *weights, *sums;

  __device__ Memory(gpu::SharedMemory shared, int head_size)
      : chunks(head_size / kWidth),
        queries(shared.take<float>(static_cast<std::size_t>(kRows * head_size))),
        weights(shared.take<float>(kRows * kSplitKeys)),
        sums(shared.take<float>(kWarps * kRows * kColumns)) {}
  static std::size_t bytes(int head_size) {
    return sizeof(float) * kRows *
           (static_cast<std::size_t>(head_size) + kSplitKeys + std::size_t{kWarps} * kColumns);
  }
  __device__ float4& quad(int row, int chunk, int i) const {
    return reinterpret_cast<float4*>(queries)[(row * kQuads + i) * chunks + chunk];
  }
  /// The block's queries as floats; zeros for rows that do not exist.
  __device__ void load_queries(const ForwardArguments<T>& x, const SplitBlock<kRows>& block) const {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * chunks; i += kThreads) {
      const int row = i / chunks, chunk = i % chunks;
      gpu::Vector<T> q{};
      if (row < block.rows) {
        q = gpu::Vector<T>::load(x.q.rows(block.batch, block.first_head + row)[0] + chunk * kWidth);
      }
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const float* const from = q.values + 4 * j;
        quad(row, chunk, j) = {from[0], from[1], from[2], from[3]};
      }
    }
  }
};

/// Scores of the split's `count` keys, from k[first] on, in base 2.
template <typename T, int kRows>
__device__ void score(const Memory<T, kRows>& memory, const Rows<T>& k, int first, int count,
                      float scale_log2) {
  using Vector = gpu::Vector<T>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int at = static_cast<int>(threadIdx.x) / kLanes; at < kSplitKeys;
       at += kGroups * kKeysAtOnce) {
    float products[kKeysAtOnce][kRows] = {};
    for (int chunk = lane; chunk < memory.chunks; chunk += kLanes) {
      Vector keys[kKeysAtOnce];
#pragma unroll
      for (int i = 0; i < kKeysAtOnce; ++i) {
        const int key = first + min(at + i * kGroups, count - 1);
        keys[i] = Vector::load(k[key] + chunk * Vector::kSize);
      }
#pragma unroll
      for (int j = 0; j < Memory<T, kRows>::kQuads; ++j) {
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          const float4 q = memory.quad(row, chunk, j);
#pragma unroll
          for (int i = 0; i < kKeysAtOnce; ++i) {
            const float* const key = keys[i].values + 4 * j;
            float& product = products[i][row];
            product = fmaf(q.x, key[0], product);
            product = fmaf(q.y, key[1], product);
            product = fmaf(q.z, key[2], product);
            product = fmaf(q.w, key[3], product);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float product = gpu::warp_reduce<gpu::Sum>(products[i][row], kLanes);
        const int key = at + i * kGroups;
        if (lane == 0) {
          memory.weights[row * kSplitKeys + key] = key < count ? product * scale_log2 : -INFINITY;
        }
      }
    }
  }
}

/// Turns a row's scores into weights relative to the largest, which is returned with their sum. A warp has
/// a row.
__device__ inline float2 weigh(float* scores) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float largest = -INFINITY, sum = 0.0f;
  for (int i = lane; i < kSplitKeys; i += 32) largest = fmaxf(largest, scores[i]);
  largest = gpu::warp_reduce<gpu::Maximum>(largest);
  for (int i = lane; i < kSplitKeys; i += 32) {
    scores[i] = exp2f(scores[i] - largest);
    sum += scores[i];
  }
  return {largest, gpu::warp_reduce<gpu::Sum>(sum)};
}

/// Adds the values times their weights, for the lane's 16 bytes of a row. In memory.sums a warp has the sums
/// of its keys.
template <typename T, int kRows>
__device__ void add_values(const Memory<T, kRows>& memory, const Rows<T>& v, int first, int count,
                           int chunk) {
  using Vector = gpu::Vector<T>;
  float sums[kRows][Vector::kSize] = {};
  if (chunk < memory.chunks) {
#pragma unroll 4
    for (int key = static_cast<int>(threadIdx.x) / kLanes; key < count; key += kGroups) {
      const Vector value = Vector::load(v[first + key] + chunk * Vector::kSize);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float weight = memory.weights[row * kSplitKeys + key];
#pragma unroll
        for (int j = 0; j < Vector::kSize; ++j) {
          sums[row][j] = fmaf(weight, value.values[j], sums[row][j]);
        }
      }
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int j = 0; j < Vector::kSize; ++j) {
      float sum = sums[row][j];
      sum += __shfl_xor_sync(gpu::kFullWarp, sum, kLanes);
      sum += __shfl_xor_sync(gpu::kFullWarp, sum, 2 * kLanes);
      if (lane >= kLanes) continue;
      constexpr int kColumns = Memory<T, kRows>::kColumns;
      memory.sums[(warp * kRows + row) * kColumns + lane * Vector::kSize + j] = sum;
    }
  }
}

/// Writes the warps' sums, added in order, for the block's rows and the channels from `first` on.
template <typename T, int kRows>
__device__ void store_sums(const Memory<T, kRows>& memory, const SplitBlock<kRows>& block,
                           const Splits& splits, const Extents& n, int first) {
  constexpr int kColumns = Memory<T, kRows>::kColumns;
  for (int i = static_cast<int>(threadIdx.x); i < block.rows * kColumns; i += kThreads) {
    const int row = i / kColumns, channel = first + i % kColumns;
    if (channel >= n.head_size) continue;
    float sum = memory.sums[i];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) sum += memory.sums[warp * kRows * kColumns + i];
    const int all_head = block.batch * n.heads + block.first_head + row;
    splits.outputs[splits.place(all_head, block.split) * n.head_size + channel] = sum;
  }
}

template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads, kRows == kMostRows ? 3 : 4)
    split_kernel(const ForwardArguments<T> x, const Splits splits) {
  const Extents& n = x.extents;
  const SplitBlock<kRows> block(n, splits);
  const Memory<T, kRows> memory(gpu::SharedMemory{}, n.head_size);
  const int first = first_key_of(x, block.batch) + block.split * kSplitKeys;
  const int count = min(kSplitKeys, n.keys - first);
  if (count <= 0) return;
  memory.load_queries(x, block);
  __syncthreads();
  score(memory, x.k.rows(block.batch, block.kv_head), first, count, n.scale_log2());
  __syncthreads();
  for (int row = static_cast<int>(threadIdx.x) / 32; row < block.rows; row += kWarps) {
    const float2 softmax = weigh(memory.weights + row * kSplitKeys);
    if (threadIdx.x % 32 > 0) continue;
    const int all_head = block.batch * n.heads + block.first_head + row;
    splits.softmaxes[splits.place(all_head, block.split)] = softmax;
  }
  for (int chunk = 0; chunk < memory.chunks; chunk += kLanes) {
    __syncthreads();  // the weights are complete, and no thread reads the last sums any more
    add_values(memory, x.v.rows(block.batch, block.kv_head), first, count,
               chunk + static_cast<int>(threadIdx.x) % kLanes);
    __syncthreads();
    store_sums(memory, block, splits, n, chunk * gpu::Vector<T>::kSize);
  }
}

template <typename T, int kRows>
void launch(const ForwardCall& call) {
  const ForwardArguments<T> arguments(call);
  const Extents& n = arguments.extents;
  const auto count = static_cast<int>(ceil_div(call.k.tokens, kKeysOfSplit));
  const std::int64_t rows = call.q.batch * call.q.heads * count;
  const CategoryScope scope(Category::workspace);
  const Tensor outputs = Tensor::empty({rows, call.q.head_size}, DType::f32);
  const Tensor softmaxes = Tensor::empty({rows, 2}, DType::f32);
  const Splits splits{count, outputs.data<float>(),
                      reinterpret_cast<float2*>(softmaxes.data<float>())};
  const std::int64_t blocks =
      call.q.batch * call.k.heads * ceil_div(std::int64_t{n.group()}, kRows) * count;
  gpu::launch(split_kernel<T, kRows>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
              Memory<T, kRows>::bytes(n.head_size), gpu::stream(), arguments, splits);
  combine_splits(call, splits);
}

}  // namespace

void forward_decoding(const ForwardCall& call) {
  const std::int64_t group = call.q.heads / call.k.heads;
  gpu::visit(call.q.tensor.dtype(), [&](auto element) {
    using T = decltype(element);
    if (group == 1) return launch<T, 1>(call);
    if (group == 2) return launch<T, 2>(call);
    group <= 4 ? launch<T, 4>(call) : launch<T, kMostRows>(call);
  });
}

}  // namespace tessera::cuda::attention
