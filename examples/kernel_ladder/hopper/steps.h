// The steps of a tile of c: one thread starts their copies, and two warpgroups multiply (sm_90a).
#pragma once

#include "examples/kernel_ladder/hopper/tiles.h"
#include "kernels/cuda/tile_ring.h"

namespace tessera::kernel_ladder::hopper {

/// The copy engine's descriptions of a and b.
struct Maps {
  gpu::TensorMap a, b;

  /// The maps of a problem's matrices, in panels of kRows rows of a and kDepth rows of b.
  static Maps of(const Problem& p) {
    return {of_matrix(p.a, p.M, p.K, kRows), of_matrix(p.b, p.K, p.N, kDepth)};
  }

 private:
  static gpu::TensorMap of_matrix(const bfloat16* data, std::int64_t rows, std::int64_t columns,
                                  int tile_rows) {
    const std::int64_t row_bytes = columns * 2, bytes = rows * row_bytes;
    return gpu::tensor_map(data,
                           {.channels = columns,
                            .tokens = rows,
                            .heads = 1,
                            .batch = 1,
                            .token_stride = row_bytes,
                            .head_stride = bytes,
                            .batch_stride = bytes},
                           tile_rows);
  }
};

/// By one thread: starts the copies of all steps of the tile at `place`, as the ring's stages become free. `step`
/// counts the block's steps.
template <typename Ring>
__device__ void copy_steps(const Ring& ring, const Maps& maps, const Place& place, int depths,
                           unsigned& step) {
  for (int depth = 0; depth < depths; depth += kDepth, ++step) {
    gpu::Barrier& full = ring.begin_fill(step);
    ring.tile(step).a().load(maps.a, {depth, place.row, 0, 0}, full);
    ring.tile(step).b().load(maps.b, {place.column, depth, 0, 0}, full);
  }
}

/// By a warpgroup: adds up the steps of its 64 rows. One step's products run while the next tiles are waited for.
template <typename Ring>
__device__ void add_steps(const Ring& ring, Sums& sum, int group, int depths, unsigned& step) {
  for (int depth = 0; depth < depths; depth += kDepth, ++step) {
    ring.wait(step).start_products(sum, group, depth > 0);
    if (depth == 0) continue;
    gpu::wait_products<1>();
    ring.release(step - 1);
  }
  gpu::wait_products<0>(sum);
  ring.release(step - 1);
}

}  // namespace tessera::kernel_ladder::hopper
