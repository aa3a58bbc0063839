// A warpgroup's products with tiles that the copy engine loads (sm_90a).
//
// A tile lies in shared memory as panels of 64 channels (kernels/cuda/tensor_map.h). wgmma takes both
// its operands from there, or the left one from registers:
//
//   multiply      S = Q K^T     left: 64 rows of a tile     right: a tile's rows are columns
//   multiply_add  O += P V      left: registers             right: a tile's rows are rows
//
// Both only start the products. gpu::wait_products waits for them.
#pragma once

#include "kernels/attention/cuda/fragments.h"
#include "kernels/cuda/panel_tile.h"

namespace tessera::cuda::attention {

using gpu::PanelTile;

/// The weights of a warp's rows in 16 bits: left operands, 16 columns each.
template <int kN>
struct PackedFragment {
  unsigned values[kN / 16][4];
};

template <typename T, int kN>
__device__ void pack(PackedFragment<kN>& to, const Fragment<1, kN>& from) {
#pragma unroll
  for (int step = 0; step < kN / 16; ++step) {
    const auto &left = from.values[0][2 * step], &right = from.values[0][2 * step + 1];
    to.values[step][0] = gpu::pack<T>(left[0], left[1]);
    to.values[step][1] = gpu::pack<T>(left[2], left[3]);
    to.values[step][2] = gpu::pack<T>(right[0], right[1]);
    to.values[step][3] = gpu::pack<T>(right[2], right[3]);
  }
}

/// Starts c = X Y^T: 64 rows of x, from `first` on, times kN rows of y, from `first_of_y` on.
template <typename T, int kRows, int kN, int kRowsOfY, int kHeadSize>
__device__ void start_multiply(Fragment<1, kN>& c, const PanelTile<T, kRows, kHeadSize>& x,
                               int first, const PanelTile<T, kRowsOfY, kHeadSize>& y,
                               int first_of_y = 0) {
  gpu::pin(c.values[0]);
  gpu::begin_products();
#pragma unroll
  for (int step = 0; step < kHeadSize / 16; ++step) {
    gpu::multiply_tiles<T, gpu::Panels::of_columns_of_b, kN>(c.values[0], x.rows(first, step),
                                                             y.rows(first_of_y, step), step > 0);
  }
  gpu::commit_products();
}

/// Starts c += P Y. Column k of p is multiplied with row first + k of y. `first` is a multiple of 16.
template <typename T, int kK, int kRowsOfY, int kHeadSize>
__device__ void start_multiply_add(Fragment<1, kHeadSize>& c, const PackedFragment<kK>& p,
                                   const PanelTile<T, kRowsOfY, kHeadSize>& y, int first = 0) {
  gpu::pin(c.values[0]);
  gpu::begin_products();
#pragma unroll
  for (int step = 0; step < kK / 16; ++step) {
    gpu::multiply_registers<T, gpu::Panels::of_rows_of_b, kHeadSize>(
        c.values[0], p.values[step], y.columns(first / 16 + step), true);
  }
  gpu::commit_products();
}

}  // namespace tessera::cuda::attention
