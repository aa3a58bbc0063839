// Rung 4, an epilogue: three warps store the sums of a tile while the warpgroups add up the next one.
#include "examples/kernel_ladder/hopper/order.h"
#include "examples/kernel_ladder/hopper/results.h"
#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/hopper/steps.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/work_queue.h"

namespace tessera::kernel_ladder::hopper {
namespace {

using Ring = gpu::TileRing<StepTiles, 3>;

__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    matmul_kernel(Problem p, const __grid_constant__ Maps maps, unsigned* draws) {
  if constexpr (gpu::kHasHopper) {
    gpu::TileMemory shared;
    Ring ring;
    Staging staging;
    gpu::NumberRing numbers{.readers = gpu::kConsumerThreads + gpu::kEpilogueThreads};
    ring.take_tiles(shared);
    staging.take_rooms(shared);
    gpu::begin_rings(shared, ring, staging, numbers);
    const TileOrder order{p};
    const gpu::WorkQueue queue{order.count(), draws};
    const int depths = static_cast<int>(p.K);
    unsigned step = 0, piece = 0;
    gpu::run_warp_roles(
        [&] {
          if (!gpu::elect_lane()) return;
          queue.produce(numbers, [&](unsigned number, unsigned) {
            copy_steps(ring, maps, order.place(number), depths, step);
          });
        },
        [&] {
          const gpu::ConsumerRows rows;
          queue.consume(numbers, [&](unsigned, unsigned) {
            Sums sum;
            add_steps(ring, sum, rows.group, depths, step);
            staging.put(rows.group, piece, sum);
          });
        },
        [&] {
          queue.consume(numbers, [&](unsigned number, unsigned) {
            store_results(p, staging, order.place(number), piece);
          });
        });
  }
}

}  // namespace

void epilogue(const Problem& p) {
  const dim3 grid(static_cast<unsigned>(gpu::multiprocessors()));
  gpu::launch(matmul_kernel, grid, dim3(gpu::kRoleThreads),
              Ring::kBytes + Staging::kBytes + gpu::NumberRing::kBytes, gpu::stream(), p,
              Maps::of(p), cuda::tickets(current_stream()));
}

}  // namespace tessera::kernel_ladder::hopper
