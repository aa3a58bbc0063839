// The rotation of gradients back (kernels/rope/op.h), in the registers that they were summed in.
//
// A lane holds both channels of each of its pairs, in either convention. With h channels in half a
// head, columns 8 n + 2 j and 8 n + 2 j + 1 of lane j of a row:
//
//   half_split     pair (c, c + h)         the same column of values n and n + h / 8
//   interleaved    pair (2 c, 2 c + 1)     the two columns of one value
#pragma once

#include "kernels/attention/cuda/fragments.h"

namespace tessera::cuda::attention {

/// Rotates (a, b) by the negative angle, as rope_backward does.
__device__ inline void rotate_back(float& a, float& b, float cosine, float sine) {
  const float turned = fmaf(a, cosine, b * sine);
  b = fmaf(b, cosine, -(a * sine));
  a = turned;
}

/// Rotates the warp's rows back. The first is that of token `first_token`.
template <int kM, int kHeadSize>
__device__ void rotate_back(Fragment<kM, kHeadSize>& c, const DeviceRotary& by, const Extents& n,
                            int batch, int first_token) {
  if (by.cosine == nullptr) return;
  constexpr int kHalf = kHeadSize / 2;
  const LanePlaces places;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int low = 0; low < 4; low += 2) {  // of the lane's two rows
      const int token = first_token + places.row_of(m, low);
      if (token >= n.queries) continue;
      const std::int64_t position = by.position_of(std::int64_t{batch} * n.queries + token, token);
      if (!by.has(position)) continue;  // rope_forward has reported it
      const float* const cosine = by.cosine + position * kHalf;
      const float* const sine = by.sine + position * kHalf;
      if (by.pairs == RopePairs::half_split) {
#pragma unroll
        for (int i = 0; i < kHeadSize / 16 * 2; ++i) {
          const int piece = i / 2, column = places.column_of(piece, i % 2);
          rotate_back(c.values[m][piece][low + i % 2],
                      c.values[m][piece + kHeadSize / 16][low + i % 2], cosine[column],
                      sine[column]);
        }
      } else {
#pragma unroll
        for (int piece = 0; piece < kHeadSize / 8; ++piece) {
          const int pair = places.column_of(piece, 0) / 2;
          rotate_back(c.values[m][piece][low], c.values[m][piece][low + 1], cosine[pair],
                      sine[pair]);
        }
      }
    }
  }
}

}  // namespace tessera::cuda::attention
