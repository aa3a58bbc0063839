// Rung 3, a queue: each thread block stays, and draws tiles of c. The next tile's copies begin while the sums of the
// last one are stored.
#include "examples/kernel_ladder/hopper/order.h"
#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/hopper/steps.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/work_queue.h"

namespace tessera::kernel_ladder::hopper {
namespace {

using Ring = gpu::TileRing<StepTiles, 4>;

__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    matmul_kernel(Problem p, const __grid_constant__ Maps maps, unsigned* draws) {
  if constexpr (gpu::kHasHopper) {
    gpu::TileMemory shared;
    Ring ring;
    gpu::NumberRing numbers;
    ring.take_tiles(shared);
    gpu::begin_rings(shared, ring, numbers);
    const TileOrder order{p};
    const gpu::WorkQueue queue{order.count(), draws};
    const int depths = static_cast<int>(p.K);
    unsigned step = 0;
    gpu::run_roles(
        [&] {
          queue.produce(numbers, [&](unsigned number, unsigned) {
            copy_steps(ring, maps, order.place(number), depths, step);
          });
        },
        [&] {
          const gpu::ConsumerRows rows;
          queue.consume(numbers, [&](unsigned number, unsigned) {
            Sums sum;
            add_steps(ring, sum, rows.group, depths, step);
            store_sums(p, order.place(number), rows.group, sum);
          });
        });
  }
}

}  // namespace

void queue(const Problem& p) {
  const dim3 grid(static_cast<unsigned>(gpu::multiprocessors()));
  gpu::launch(matmul_kernel, grid, dim3(gpu::kRoleThreads), Ring::kBytes + gpu::NumberRing::kBytes,
              gpu::stream(), p, Maps::of(p), cuda::tickets(current_stream()));
}

}  // namespace tessera::kernel_ladder::hopper
