// The epilogue of the products on Hopper: three warps store what the consumers leave in shared memory (sm_90a).
#pragma once

#include "examples/kernel_ladder/hopper/tiles.h"
#include "kernels/grouped_matmul/hopper/staging.h"

namespace tessera::kernel_ladder::hopper {

/// Two pieces of 128 columns of f32, one after the other, in a room for each consumer.
using Staging = cuda::groups::Staging<float, kColumns>;

/// By the epilogue's threads: stores the sums of the tile at `place`. `piece` counts each consumer's pieces. A lane
/// stores 16 bytes, and a warp a row of 512.
__device__ inline void store_results(const Problem& p, const Staging& staging, const Place& place,
                                     unsigned& piece) {
  constexpr int kChunks = Staging::kPieceColumns / Staging::kWidth;
  const int thread = static_cast<int>(threadIdx.x) - 32, chunk = thread % kChunks;
#pragma unroll 1
  for (int first = 0; first < kColumns; first += Staging::kPieceColumns, ++piece) {
    const int column = place.column + first + chunk * Staging::kWidth;
#pragma unroll
    for (int group = 0; group < gpu::kConsumers; ++group) {
      staging.wait(group, piece);
      for (int row = thread / kChunks; row < kGroupRows; row += gpu::kEpilogueThreads / kChunks) {
        const int row_of_c = place.row + kGroupRows * group + row;
        if (row_of_c >= p.M || column >= p.N) break;
        *reinterpret_cast<float4*>(p.c + row_of_c * p.N + column) =
            *static_cast<const float4*>(staging.chunk(group, row, chunk));
      }
      staging.release(group);
    }
  }
}

}  // namespace tessera::kernel_ladder::hopper
