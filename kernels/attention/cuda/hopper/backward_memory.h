// Shared memory of attention's backward kernel (sm_90a). Both of its parts own rows, which stay, and visit
// columns, which stream by (backward_mma.h). So they share rings:
//
//              rows[0]   rows[1]   columns[0]              columns[1]
//   dQ         Q         dO        K                       V
//   dK, dV     K         V         Q, and its statistics   dO
//
// A thread block takes blocks of both parts in turn. The producer and the consumers count tiles over
// both, so that the next part's first tiles are loaded while the last part's are still read.
#pragma once

#include "kernels/attention/cuda/hopper/pipeline.h"

namespace tessera::cuda::attention {

inline constexpr int kStages = 2;
/// The statistics of a tile are copied in pairs, and a piece may begin in the middle of a pair.
inline constexpr int kTileStatistics = kRowsOfBlock + 2;

/// A barrier of a consumer's threads. (Number 1 is that of clear_rows.)
__device__ inline void sync_consumer(const ConsumerRows& rows) {
  gpu::named_sync(2 + rows.group, gpu::kWarpgroup);
}

template <typename T, int kHeadSize>
struct BackwardMemory {
  using Tile = PanelTile<T, kRowsOfBlock, kHeadSize>;
  using Rows = TileRing<Tile, 1>;
  using Columns = TileRing<Tile, kStages>;
  using Outputs = SharedTile<T, kRowsOfBlock, kHeadSize>;
  static constexpr std::size_t kBytes =
      2 * Rows::kBytes + 2 * Columns::kBytes + sizeof(T) * Outputs::kElements +
      kStages * kTileStatistics * sizeof(QueryStatistics) + gpu::NumberRing::kBytes;

  Rows rows[2];
  Columns columns[2];
  QueryStatistics* statistics;  // of each stage
  Outputs outputs;              // on their way to memory
  gpu::NumberRing numbers;      // of the thread block's blocks of rows

  explicit __device__ BackwardMemory(gpu::TileMemory shared) {
    for (Rows& ring : rows) ring.take_tiles(shared);
    for (Columns& ring : columns) ring.take_tiles(shared);
    outputs = {shared.take<T>(Outputs::kElements, 128)};
    statistics = shared.take<QueryStatistics>(kStages * kTileStatistics);
    gpu::begin_rings(shared, rows[0], rows[1], columns[0], columns[1], numbers);
  }
};

/// By the consumers, which have begun `tile`: the products that read the one before it are complete. Both
/// parts release a tile so late, because its last product runs into the next one.
template <typename Ring>
__device__ void release_before(unsigned tile, const Ring& first, const Ring& second) {
  if (tile == 0) return;
  first.release(tile - 1);
  second.release(tile - 1);
}

struct BackwardMaps {
  gpu::TensorMap q, d_o, k, v;
};

}  // namespace tessera::cuda::attention
