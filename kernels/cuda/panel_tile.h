// Tiles in shared memory that the copy engine loads and wgmma reads (sm_90a).
#pragma once

#include "kernels/cuda/wgmma.h"

namespace tessera::gpu {

/// kRows rows of kChannels channels, in panels of 64 channels (tensor_map.h), at a multiple of 1024
/// bytes.
template <typename T, int kRows, int kChannels>
struct PanelTile {
  using Element = T;
  static constexpr int kElements = kRows * kChannels, kBytes = kElements * int{sizeof(T)};
  static constexpr int kPanelBytes = kRows * kPanel * int{sizeof(T)};
  T* data;

  /// Channels from 16 step of the rows from `row` on, a multiple of 8.
  __device__ Descriptor rows(int row, int step) const {
    constexpr int kSteps = kPanel / 16;
    return Descriptor::of_rows(data + (step / kSteps * kRows + row) * kPanel + step % kSteps * 16);
  }
  /// Rows from 16 step, channels from panel `first` on.
  __device__ Descriptor columns(int step, int first = 0) const {
    return Descriptor::of_columns(data + (first * kRows + 16 * step) * kPanel, kPanelBytes);
  }
  /// The place of 16 bytes of a row.
  __device__ T* chunk(int panel, int row, int chunk) const {
    return data + (panel * kRows + row) * kPanel + (chunk ^ row % 8) * (16 / int{sizeof(T)});
  }
  /// Starts to copy the tile that begins at `place`, or copies it to several `blocks` of the cluster
  /// (kernels/cuda/cluster.h). One thread calls this.
  template <typename... Blocks>
  __device__ void load(const TensorMap& map, TilePlace place, Barrier& barrier,
                       Blocks... blocks) const {
#pragma unroll
    for (int panel = 0; panel < kChannels / kPanel; ++panel) {
      copy_tile(data + panel * kRows * kPanel, map, place, barrier, blocks...);
      place.channel += kPanel;
    }
  }
  /// Makes rows from `first` on zeros. Threads 0 to `threads` - 1 share the work.
  __device__ void clear_rows(int first, int thread, int threads) const {
    const int count = (kRows - first) * (kPanel / 8);  // chunks of a panel
#pragma unroll
    for (int panel = 0; panel < kChannels / kPanel; ++panel) {
      auto* const chunks = reinterpret_cast<uint4*>(data + (panel * kRows + first) * kPanel);
      for (int i = thread; i < count; i += threads) write_for_engines(chunks[i], uint4{});
    }
  }
};

}  // namespace tessera::gpu
