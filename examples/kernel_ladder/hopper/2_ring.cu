// Rung 2, a ring: the copy engine loads the tiles, several steps ahead, and one thread starts its copies.
#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/hopper/steps.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::hopper {
namespace {

using Ring = gpu::TileRing<StepTiles, 4>;

__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    matmul_kernel(Problem p, const __grid_constant__ Maps maps) {
  if constexpr (gpu::kHasHopper) {
    gpu::TileMemory shared;
    Ring ring;
    ring.take_tiles(shared);
    gpu::begin_rings(shared, ring);
    const Place place{static_cast<int>(blockIdx.y) * kRows,
                      static_cast<int>(blockIdx.x) * kColumns};
    const int depths = static_cast<int>(p.K);
    unsigned step = 0;
    gpu::run_roles([&] { copy_steps(ring, maps, place, depths, step); },
                   [&] {
                     const gpu::ConsumerRows rows;
                     Sums sum;
                     add_steps(ring, sum, rows.group, depths, step);
                     store_sums(p, place, rows.group, sum);
                   });
  }
}

}  // namespace

void ring(const Problem& p) {
  const dim3 grid(gpu::blocks_for(p.N, kColumns), gpu::blocks_for(p.M, kRows));
  gpu::launch(matmul_kernel, grid, dim3(gpu::kRoleThreads), Ring::kBytes, gpu::stream(), p,
              Maps::of(p));
}

}  // namespace tessera::kernel_ladder::hopper
