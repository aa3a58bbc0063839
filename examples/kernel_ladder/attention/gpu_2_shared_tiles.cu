// GPU rung 2, tiles in shared memory: 64 queries visit 32 keys at a time. A thread has a query, its
// scores of the tile and its output in registers.
#include "examples/kernel_ladder/attention/gpu_rungs.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::attention {
namespace {

constexpr int kQueries = 64, kKeys = 32;    // of a tile; a block has a thread for each query
constexpr int kVectors = kGpuChannels / 4;  // of 4 channels
using Tile = float4[kKeys][kVectors];

__device__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

/// a += factor b
__device__ void add(float4& a, float factor, const float4& b) {
  a.x += factor * b.x, a.y += factor * b.y, a.z += factor * b.z, a.w += factor * b.w;
}

/// The block copies rows [first, first + kKeys) of a head. Rows after the last token are zero.
__device__ void load(Tile& tile, const float* head, std::int64_t first, std::int64_t tokens) {
  const auto* const from = reinterpret_cast<const float4*>(head) + first * kVectors;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kVectors; i += kQueries) {
    const int row = i / kVectors;
    tile[row][i % kVectors] = first + row < tokens ? from[i] : make_float4(0, 0, 0, 0);
  }
}

__global__ void __launch_bounds__(kQueries) attention_kernel(Attention p) {
  TESSERA_SHARED(Tile, keys, );
  TESSERA_SHARED(Tile, values, );
  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kQueries;
  const std::int64_t head = blockIdx.y * p.T * p.D, query = first_query + threadIdx.x;
  const std::int64_t row = head + (query < p.T ? query : p.T - 1) * p.D;
  float4 q[kVectors], o[kVectors];
#pragma unroll
  for (int c = 0; c < kVectors; ++c) {
    q[c] = reinterpret_cast<const float4*>(p.q + row)[c];
    o[c] = make_float4(0, 0, 0, 0);
  }
  float maximum = -INFINITY, sum = 0.0f;
  const std::int64_t end = first_query + kQueries < p.T ? first_query + kQueries : p.T;
  for (std::int64_t first_key = 0; first_key < end; first_key += kKeys) {
    __syncthreads();  // all threads are done with the last tile
    load(keys, p.k + head, first_key, p.T);
    load(values, p.v + head, first_key, p.T);
    __syncthreads();
    float scores[kKeys], risen = maximum;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      float score = 0.0f;
#pragma unroll
      for (int c = 0; c < kVectors; ++c) score += dot(q[c], keys[j][c]);
      scores[j] = first_key + j <= query ? p.scale * score : -INFINITY;
      risen = fmaxf(risen, scores[j]);
    }
    const float correction = expf(maximum - risen);
    maximum = risen;
    sum *= correction;
#pragma unroll
    for (int c = 0; c < kVectors; ++c) {
      o[c].x *= correction, o[c].y *= correction, o[c].z *= correction, o[c].w *= correction;
    }
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const float weight = expf(scores[j] - maximum);
      sum += weight;
#pragma unroll
      for (int c = 0; c < kVectors; ++c) add(o[c], weight, values[j][c]);
    }
  }
  if (query >= p.T) return;
  const float factor = 1.0f / sum;
#pragma unroll
  for (int c = 0; c < kVectors; ++c) {
    reinterpret_cast<float4*>(p.o + row)[c] =
        make_float4(factor * o[c].x, factor * o[c].y, factor * o[c].z, factor * o[c].w);
  }
}

}  // namespace

void shared_tiles(const Attention& p) {
  const dim3 grid(gpu::blocks_for(p.T, kQueries), static_cast<unsigned>(p.H));
  gpu::launch(attention_kernel, grid, dim3(kQueries), 0, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::attention
