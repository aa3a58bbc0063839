// A warp's matrices in registers, and the two products that attention's passes are made of.
//
// Fragment<kM, kN> is 16 kM rows by kN columns of floats, spread over the warp as mma leaves them:
// values[m][n][i] of a lane is at
//
//        row 16 m + lane / 4 + (i / 2) * 8,    column 8 n + lane % 4 * 2 + i % 2
//
// so a lane has two rows per m ("halves"), and four neighbouring lanes share a row. The layout of a
// result in 16 bits is that of a left operand: P goes from one product to the next in registers.
#pragma once

#include "kernels/attention/cuda/pieces.h"
#include "kernels/attention/cuda/tiles.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"

namespace tessera::cuda::attention {

/// 16-row pieces of a warp: its sums, of kHeadSize columns, take 128 registers at most.
template <int kHeadSize>
inline constexpr int kPiecesOfWarp = kHeadSize > 128 ? 1 : 2;

template <int kM, int kN>
struct Fragment {
  float values[kM][kN / 8][4];

  /// f(value, m, n, i) for each of the lane's values.
  template <typename F>
  __device__ void for_each(F f) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) f(values[m][n][i], m, n, i);
      }
    }
  }
  __device__ void clear() {
    for_each([](float& value, int, int, int) { value = 0.0f; });
  }
};

/// One number for each of the lane's rows: [m][half].
template <int kM>
struct RowValues {
  float values[kM][2];

  /// f(value, m, half) for each of the lane's rows.
  template <typename F>
  __device__ void for_each(F f) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) f(values[m][half], m, half);
    }
  }
  __device__ static RowValues all(float value) {
    RowValues result;
    result.for_each([=](float& x, int, int) { x = value; });
    return result;
  }
};

/// The rows and columns of a lane's values.
struct LanePlaces {
  int lane = unhoisted_lane();

  /// The row (column) of values[m][n][i].
  __device__ int row_of(int m, int i) const { return 16 * m + lane / 4 + i / 2 * 8; }
  __device__ int column_of(int n, int i) const { return 8 * n + lane % 4 * 2 + i % 2; }
};
/// The first row of the warp's part of a block's tile.
template <int kM>
__device__ int warp_row() {
  return static_cast<int>(gpu::unhoisted(threadIdx.x)) / 32 * 16 * kM;
}

/// c = X Y^T: rows [first, first + 16 kM) of x times every row of y.
template <typename T, int kM, int kN, int kRows, int kHeadSize>
__device__ void multiply(Fragment<kM, kN>& c, const SharedTile<T, kRows, kHeadSize>& x, int first,
                         const SharedTile<T, kN, kHeadSize>& y) {
  c.clear();
  const LeftReader<kHeadSize> left(first);
  const TransposedReader<kHeadSize> right;
#pragma unroll
  for (int step = 0; step < kHeadSize / 16; ++step) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) left.read(a[m], x.data, m, step);
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      unsigned b[2][2];
      right.read(b, y.data, n, step);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        gpu::multiply_accumulate<T>(c.values[m][2 * n], a[m], b[0]);
        gpu::multiply_accumulate<T>(c.values[m][2 * n + 1], a[m], b[1]);
      }
    }
  }
}

/// c += P Y with P rounded to T. Column k of p is multiplied with row k of y.
template <typename T, int kM, int kK, int kHeadSize>
__device__ void multiply_add(Fragment<kM, kHeadSize>& c, const Fragment<kM, kK>& p,
                             const SharedTile<T, kK, kHeadSize>& y) {
  const RightReader<kHeadSize> reader;
#pragma unroll
  for (int step = 0; step < kK / 16; ++step) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const auto &left = p.values[m][2 * step], &right = p.values[m][2 * step + 1];
      a[m][0] = gpu::pack<T>(left[0], left[1]);
      a[m][1] = gpu::pack<T>(left[2], left[3]);
      a[m][2] = gpu::pack<T>(right[0], right[1]);
      a[m][3] = gpu::pack<T>(right[2], right[3]);
    }
#pragma unroll
    for (int n = 0; n < kHeadSize / 16; ++n) {
      unsigned b[2][2];
      reader.read(b, y.data, n, step);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        gpu::multiply_accumulate<T>(c.values[m][2 * n], a[m], b[0]);
        gpu::multiply_accumulate<T>(c.values[m][2 * n + 1], a[m], b[1]);
      }
    }
  }
}

/// Multiplies each row by its factor.
template <int kM, int kN>
__device__ void scale_rows(Fragment<kM, kN>& c, const RowValues<kM>& factors) {
  c.for_each([&](float& value, int m, int, int i) { value *= factors.values[m][i / 2]; });
}

/// Sets scores to -infinity where seen(row, column) is false.
template <int kM, int kN, typename F>
__device__ void mask(Fragment<kM, kN>& scores, F seen) {
  const LanePlaces places;
  scores.for_each([&](float& score, int m, int n, int i) {
    if (!seen(places.row_of(m, i), places.column_of(n, i))) score = -INFINITY;
  });
}

/// The softmax of forward, tile by tile: for each of the lane's rows the largest score so far, and
/// the lane's share of the sum of weights relative to it.
template <int kM>
struct OnlineSoftmax {
  RowValues<kM> maximum = RowValues<kM>::all(-INFINITY), sum = RowValues<kM>::all(0.0f);

  /// Turns a tile's scores into weights. The result is the factors that correct the outputs so far.
  /// Every row that is stored has seen a key by the end of the first tile. The scale is folded into
  /// the exponent: one multiply-add each.
  template <int kN>
  __device__ RowValues<kM> weights(Fragment<kM, kN>& scores, float scale_log2) {
    RowValues<kM> corrections;
    maximum.for_each([&](float& largest, int m, int half) {
      float raised = largest;
#pragma unroll
      for (const auto& piece : scores.values[m]) {
        raised = fmaxf(raised, fmaxf(piece[2 * half], piece[2 * half + 1]));
      }
      raised = over_row<gpu::Maximum>(raised);
      const float correction = gpu::fast_exp2((largest - raised) * scale_log2);
      const float reference = raised * scale_log2;
      largest = raised;
      float total = sum.values[m][half] * correction;
#pragma unroll
      for (auto& piece : scores.values[m]) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          piece[i] = gpu::fast_exp2(fmaf(piece[i], scale_log2, -reference));
          total += piece[i];
        }
      }
      sum.values[m][half] = total;
      corrections.values[m][half] = correction;
    });
    return corrections;
  }

  /// The reduction over the four lanes that share a row.
  template <typename Operation>
  __device__ static float over_row(float value) {
    value = Operation::combine(value, __shfl_xor_sync(gpu::kFullWarp, value, 1));
    return Operation::combine(value, __shfl_xor_sync(gpu::kFullWarp, value, 2));
  }
};

/// Writes the warp's rows to the head's rows from token `first_token` on, each times its factor, as
/// far as they are in `range`, without the channels that the head lacks. The rows begin at row `first` of
/// the block's tile. They pass through the same rows of `tile`, which no other warp reads, so that whole
/// lines go out.
template <typename T, int kM, int kRows, int kHeadSize>
__device__ void store(const Rows<T>& to, int first_token, const TokenRange& range,
                      const Fragment<kM, kHeadSize>& c, const RowValues<kM>& factors,
                      const SharedTile<T, kRows, kHeadSize>& tile, int first) {
  const LanePlaces places;
  const int lane = places.lane;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kHeadSize / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const pair = c.values[m][n] + 2 * half;
        const float factor = factors.values[m][half];
        T* const at =
            tile.data + place_of<kHeadSize>(first + places.row_of(m, 2 * half), n) + lane % 4 * 2;
        *reinterpret_cast<unsigned*>(at) = gpu::pack<T>(pair[0] * factor, pair[1] * factor);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kHeadSize / 8;
  for (int i = lane; i < 16 * kM * kChunks; i += 32) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (chunk * 8 >= to.channels) continue;
    if (first_token + row < range.first) continue;
    if (first_token + row >= range.end) break;
    *reinterpret_cast<uint4*>(to[first_token + row] + chunk * 8) =
        *reinterpret_cast<const uint4*>(tile.data + place_of<kHeadSize>(first + row, chunk));
  }
}

}  // namespace tessera::cuda::attention
