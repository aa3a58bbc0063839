// GPU rung 3, tensor cores: a warp multiplies 16 queries with 64 keys by mma.sync, in bf16 with
// sums in f32. The weights go from the first product into the second in registers.
#include "examples/kernel_ladder/attention/gpu_rungs.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tensor_core.h"

namespace tessera::kernel_ladder::attention {
namespace {

constexpr int kD = kGpuChannels, kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTile = 64;  // queries of a block, and keys that it visits at a time
static_assert(kTile == 16 * kWarps);

// Elements of a row in shared memory. With eight more than the channels, the rows that ldmatrix
// reads at a time lie in different banks.
constexpr int kRow = kD + 8;

/// Scores or outputs of a warp's 16 queries, as mma.sync leaves them: values[n][i] of a lane is at
/// row lane / 4 + i / 2 * 8, column 8 n + lane % 4 * 2 + i % 2.
struct Fragment {
  float values[kTile / 8][4] = {};
};
static_assert(kTile == kD);

/// The block copies rows [first, first + kTile) of a head. Rows after the last token are zero.
__device__ void load(bfloat16* tile, const float* head, std::int64_t first, std::int64_t tokens) {
  constexpr int kVectors = kD / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kVectors; i += kThreads) {
    const int row = i / kVectors, channel = i % kVectors * 4;
    float4 x = make_float4(0, 0, 0, 0);
    if (first + row < tokens) {
      x = *reinterpret_cast<const float4*>(head + (first + row) * kD + channel);
    }
    *reinterpret_cast<uint2*>(tile + row * kRow + channel) =
        make_uint2(gpu::pack<bfloat16>(x.x, x.y), gpu::pack<bfloat16>(x.z, x.w));
  }
}

/// scores = Q K^T. q has the left operands of the channels, 16 at a time.
__device__ void multiply(Fragment& scores, const unsigned (&q)[kD / 16][4], const bfloat16* keys) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kTile / 16; ++n) {
#pragma unroll
    for (int step = 0; step < kD / 16; ++step) {
      const int row = 16 * n + lane / 16 * 8 + lane % 8, channel = 16 * step + lane / 8 % 2 * 8;
      unsigned b[4];
      gpu::load_matrices<false>(b, keys + row * kRow + channel);
      gpu::multiply_accumulate<bfloat16>(scores.values[2 * n], q[step], {b[0], b[1]});
      gpu::multiply_accumulate<bfloat16>(scores.values[2 * n + 1], q[step], {b[2], b[3]});
    }
  }
}

/// output += P V. A result's layout is that of a left operand.
__device__ void multiply_add(Fragment& output, const Fragment& weights, const bfloat16* values) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    const auto &left = weights.values[2 * step], &right = weights.values[2 * step + 1];
    const unsigned p[4] = {
        gpu::pack<bfloat16>(left[0], left[1]), gpu::pack<bfloat16>(left[2], left[3]),
        gpu::pack<bfloat16>(right[0], right[1]), gpu::pack<bfloat16>(right[2], right[3])};
#pragma unroll
    for (int n = 0; n < kD / 16; ++n) {
      unsigned b[4];
      gpu::load_matrices<true>(b, values + (16 * step + lane % 16) * kRow + 16 * n + lane / 16 * 8);
      gpu::multiply_accumulate<bfloat16>(output.values[2 * n], p, {b[0], b[1]});
      gpu::multiply_accumulate<bfloat16>(output.values[2 * n + 1], p, {b[2], b[3]});
    }
  }
}

/// The reduction over the four lanes that share a row.
template <typename Operation>
__device__ float over_row(float value) {
  value = Operation::combine(value, __shfl_xor_sync(gpu::kFullWarp, value, 1));
  return Operation::combine(value, __shfl_xor_sync(gpu::kFullWarp, value, 2));
}

/// The online softmax of the lane's two rows, from `first_row` and eight below.
struct Softmax {
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};

  /// Hides keys after their query. Then scores become weights, and the output is corrected.
  __device__ void operator()(Fragment& scores, Fragment& output, float scale, std::int64_t row,
                             std::int64_t column) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float risen = maximum[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& score = scores.values[n][i];
          score = column + 8 * n + i % 2 <= row + 8 * half ? scale * score : -INFINITY;
          risen = fmaxf(risen, score);
        }
      }
      risen = over_row<gpu::Maximum>(risen);
      const float correction = expf(maximum[half] - risen);
      maximum[half] = risen;
      sum[half] *= correction;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores.values[n][i] = expf(scores.values[n][i] - risen);
          sum[half] += scores.values[n][i];
          output.values[n][i] *= correction;
        }
      }
    }
  }
};

__global__ void __launch_bounds__(kThreads) attention_kernel(Attention p) {
  gpu::SharedMemory memory;
  auto* const keys = memory.take<bfloat16>(kTile * kRow);
  auto* const values = memory.take<bfloat16>(kTile * kRow);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t head = blockIdx.y * p.T * kD;

  unsigned q[kD / 16][4];
  load(keys, p.q + head, first_query, p.T);
  __syncthreads();
#pragma unroll
  for (int step = 0; step < kD / 16; ++step) {
    gpu::load_matrices<false>(q[step],
                              keys + (16 * warp + lane % 16) * kRow + 16 * step + lane / 16 * 8);
  }

  const std::int64_t row = first_query + 16 * warp + lane / 4;  // the lane's first
  Softmax softmax;
  Fragment output;
  for (std::int64_t first_key = 0; first_key <= first_query; first_key += kTile) {
    __syncthreads();  // all warps are done with the last tile
    load(keys, p.k + head, first_key, p.T);
    load(values, p.v + head, first_key, p.T);
    __syncthreads();
    Fragment scores;
    multiply(scores, q, keys);
    softmax(scores, output, p.scale, row, first_key + lane % 4 * 2);
    multiply_add(output, scores, values);
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float factor = 1.0f / over_row<gpu::Sum>(softmax.sum[half]);
    if (row + 8 * half >= p.T) continue;
    float* const o = p.o + head + (row + 8 * half) * kD + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      const float* const pair = output.values[n] + 2 * half;
      *reinterpret_cast<float2*>(o + 8 * n) = make_float2(factor * pair[0], factor * pair[1]);
    }
  }
}

}  // namespace

void tensor_cores(const Attention& p) {
  const dim3 grid(gpu::blocks_for(p.T, kTile), static_cast<unsigned>(p.H));
  gpu::launch(attention_kernel, grid, dim3(kThreads), 2 * kTile * kRow * sizeof(bfloat16),
              gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::attention
