// The parts of attention's general kernels.
//
// A block of 4 warps owns 32 *rows* and visits *columns* in tiles of 32. Forward and dQ: rows are
// queries, columns keys; dK and dV: rows are keys, columns queries. All tiles are floats in shared
// memory, [row][channel].
//
//   products   lane j of a warp holds column j of 8 scores, one for each of the warp's rows:
//                                  column: lane 0 .. 31
//                row 0 of the warp      [ s0  s0  ...  s0 ]
//                ...                                            a row is one register of the warp,
//                row 7                  [ s7  s7  ...  s7 ]     its maximum a warp reduction
//   outputs    lane j of a warp holds channels j, j + 32, ... of its 8 rows.
//
// Both read the values of 8 rows from shared memory by broadcast, and one value per lane. A value
// that is read serves up to 8 multiply-adds.
#pragma once

#include "kernels/attention/cuda/arguments.h"
#include "kernels/attention/cuda/pieces.h"
#include "kernels/cuda/numeric.h"

namespace tessera::cuda::attention::general {

inline constexpr int kWarps = 4, kThreads = kWarps * 32;
inline constexpr int kRowsPerWarp = 8, kRows = kWarps * kRowsPerWarp;
inline constexpr int kColumns = 32;  // one per lane

/// kRows or kColumns rows of up to kChannels floats.
template <int kChannels>
struct Tile {
  // 16 bytes more than whole rows of banks: lanes that read 16 bytes of different rows do not
  // conflict.
  static constexpr int kStride = kChannels + 4;
  static constexpr std::size_t kSize = 32 * kStride;
  float* data;

  explicit __device__ Tile(gpu::SharedMemory& shared) : data(shared.take<float>(kSize)) {}
  __device__ float* row(int i) const { return data + i * kStride; }
};

/// Rows [first, first + 32) of a head as floats; zeros beyond `count` rows and `channels` channels.
template <typename T, int kChannels>
__device__ void load(const Tile<kChannels>& tile, const Rows<T>& source, int first, int count,
                     int channels) {
  const int thread = unhoisted(static_cast<int>(threadIdx.x));
  for (int i = thread; i < 32 * kChannels; i += kThreads) {
    const int row = i / kChannels, channel = i % kChannels;
    const bool inside = first + row < count && channel < channels;
    tile.row(row)[channel] = inside ? gpu::load(source[first + row][channel]) : 0.0f;
  }
}

__device__ inline float4 load4(const float* source) {
  return *reinterpret_cast<const float4*>(source);
}

/// product[i] = row i of `rows` times the lane's row of `columns`.
template <int kChannels>
__device__ void multiply(float (&product)[kRowsPerWarp], const float* rows,
                         const Tile<kChannels>& columns, int channels) {
  const float* const column = columns.row(static_cast<int>(threadIdx.x) % 32);
#pragma unroll
  for (float& p : product) p = 0.0f;
  for (int c = 0; c < channels; c += 4) {
    const float4 y = load4(column + c);
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const float4 x = load4(rows + i * Tile<kChannels>::kStride + c);
      product[i] = fmaf(x.x, y.x, product[i]);
      product[i] = fmaf(x.y, y.y, product[i]);
      product[i] = fmaf(x.z, y.z, product[i]);
      product[i] = fmaf(x.w, y.w, product[i]);
    }
  }
}

/// Moves a warp's scores from one column per lane to all columns for every lane.
struct Weights {
  static constexpr int kStride = kRowsPerWarp + 4;  // as for Tile
  static constexpr std::size_t kSize = kWarps * kColumns * kStride;
  float* data;  // the warp's own [column][row]

  explicit __device__ Weights(gpu::SharedMemory& shared)
      : data(shared.take<float>(kSize) + threadIdx.x / 32 * kColumns * kStride) {}
  __device__ void write(const float (&values)[kRowsPerWarp]) const {
    float4* const to = reinterpret_cast<float4*>(data + threadIdx.x % 32 * kStride);
    to[0] = {values[0], values[1], values[2], values[3]};
    to[1] = {values[4], values[5], values[6], values[7]};
  }
};

/// A lane's part of its warp's outputs.
template <int kChannels>
struct Outputs {
  static constexpr int kPerLane = kChannels / 32;
  float values[kRowsPerWarp][kPerLane] = {};

  /// values += weights * columns. The whole warp has written its weights before.
  __device__ void add(const Weights& weights, const Tile<kChannels>& columns) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int j = 0; j < kColumns; ++j) {
      const float4 low = load4(weights.data + j * Weights::kStride);
      const float4 high = load4(weights.data + j * Weights::kStride + 4);
      const float w[kRowsPerWarp] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int n = 0; n < kPerLane; ++n) {
        const float value = columns.row(j)[lane + 32 * n];
#pragma unroll
        for (int i = 0; i < kRowsPerWarp; ++i) values[i][n] = fmaf(w[i], value, values[i][n]);
      }
    }
  }

  /// Writes factor * values to the warp's rows, as far as they are in `range`. The block's tile
  /// begins at `first`.
  template <typename T>
  __device__ void store(const Rows<T>& to, int first, const TokenRange& range, int channels,
                        float factor) const {
    const int thread = unhoisted(static_cast<int>(threadIdx.x)), lane = thread % 32;
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int row = first + thread / 32 * kRowsPerWarp + i;
      if (row < range.first) continue;
      if (row >= range.end) break;
#pragma unroll
      for (int n = 0; n < kPerLane; ++n) {
        if (lane + 32 * n < channels) gpu::store(to[row][lane + 32 * n], factor * values[i][n]);
      }
    }
  }
};

/// Calls f(Channels<n>) with the smallest tile width n that holds heads of `head_size` channels.
template <int kChannels>
struct Channels {
  static constexpr int kValue = kChannels;
};
template <typename F>
void visit_channels(int head_size, F&& f) {
  if (head_size <= 32) return f(Channels<32>{});
  if (head_size <= 64) return f(Channels<64>{});
  if (head_size <= 128) return f(Channels<128>{});
  f(Channels<256>{});
}

}  // namespace tessera::cuda::attention::general
