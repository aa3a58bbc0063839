// Tiles that the copy engine loads, and a warpgroup's products with them (sm_90a).
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
#include "kernels/cuda/hopper.h"

namespace tessera::cuda::attention {

using gpu::kPanel;

/// kRows rows of kHeadSize channels, at a multiple of 1024 bytes.
template <typename T, int kRows, int kHeadSize>
struct PanelTile {
  using Element = T;
  static constexpr int kElements = kRows * kHeadSize, kBytes = kElements * int{sizeof(T)};
  static constexpr int kPanelBytes = kRows * kPanel * int{sizeof(T)};
  T* data;

  /// Channels from 16 step of the rows from `row` on, a multiple of 8.
  __device__ gpu::Descriptor rows(int row, int step) const {
    constexpr int kSteps = kPanel / 16;
    return gpu::Descriptor::of_rows(data + (step / kSteps * kRows + row) * kPanel +
                                    step % kSteps * 16);
  }
  /// Rows from 16 step, all channels.
  __device__ gpu::Descriptor columns(int step) const {
    return gpu::Descriptor::of_columns(data + 16 * step * kPanel, kPanelBytes);
  }
  /// Starts to copy rows from token `first` on. One thread calls this.
  __device__ void load(const gpu::TensorMap& map, int first, int head, int batch,
                       gpu::Barrier& barrier) const {
#pragma unroll
    for (int panel = 0; panel < kHeadSize / kPanel; ++panel) {
      gpu::copy_tile(data + panel * kRows * kPanel, map, {panel * kPanel, first, head, batch},
                     barrier);
    }
  }
  /// Makes rows from `first` on zeros. Threads 0 to `threads` - 1 share the work.
  __device__ void clear_rows(int first, int thread, int threads) const {
    const int count = (kRows - first) * (kPanel / 8);  // chunks of a panel
#pragma unroll
    for (int panel = 0; panel < kHeadSize / kPanel; ++panel) {
      auto* const chunks = reinterpret_cast<uint4*>(data + (panel * kRows + first) * kPanel);
      for (int i = thread; i < count; i += threads) chunks[i] = uint4{0, 0, 0, 0};
    }
  }
};

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

/// Starts c = X Y^T: 64 rows of x, from `first` on, times every row of y.
template <typename T, int kRows, int kN, int kHeadSize>
__device__ void start_multiply(Fragment<1, kN>& c, const PanelTile<T, kRows, kHeadSize>& x,
                               int first, const PanelTile<T, kN, kHeadSize>& y) {
  gpu::pin(c.values[0]);
  gpu::begin_products();
#pragma unroll
  for (int step = 0; step < kHeadSize / 16; ++step) {
    gpu::multiply_tiles<T, gpu::Panels::of_columns_of_b, kN>(c.values[0], x.rows(first, step),
                                                             y.rows(0, step), step > 0);
  }
  gpu::commit_products();
}

/// Starts c += P Y. Column k of p is multiplied with row k of y.
template <typename T, int kK, int kHeadSize>
__device__ void start_multiply_add(Fragment<1, kHeadSize>& c, const PackedFragment<kK>& p,
                                   const PanelTile<T, kK, kHeadSize>& y) {
  gpu::pin(c.values[0]);
  gpu::begin_products();
#pragma unroll
  for (int step = 0; step < kK / 16; ++step) {
    gpu::multiply_registers<T, gpu::Panels::of_rows_of_b, kHeadSize>(c.values[0], p.values[step],
                                                                     y.columns(step), true);
  }
  gpu::commit_products();
}

}  // namespace tessera::cuda::attention
