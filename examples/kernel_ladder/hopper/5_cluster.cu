// Rung 5, clusters: two thread blocks with tiles below each other share b's tile. Each copies half of it to both.
#include "examples/kernel_ladder/hopper/order.h"
#include "examples/kernel_ladder/hopper/results.h"
#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/hopper/steps.h"
#include "kernels/cuda/cluster_ring.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/work_queue.h"

namespace tessera::kernel_ladder::hopper {
namespace {

constexpr unsigned kBlocks = 2;  // of a cluster

using Ring = gpu::ClusterRing<StepTiles, 3>;

/// By one thread of each block: the copies of all steps of its tile of a, and of its half of b's tiles.
__device__ void copy_halves(const Ring& ring, const Maps& maps, const Place& place, int depths,
                            unsigned& step) {
  using Half = gpu::PanelTile<bfloat16, kDepth, kColumns / kBlocks>;
  const auto half = static_cast<int>(gpu::block_in_cluster());
  for (int depth = 0; depth < depths; depth += kDepth, ++step) {
    gpu::Barrier& full = ring.begin_fill(step);
    ring.tile(step).a().load(maps.a, {depth, place.row, 0, 0}, full);
    const Half of_b{ring.tile(step).b().data + half * Half::kElements};
    const int column = place.column + half * kColumns / static_cast<int>(kBlocks);
    of_b.load(maps.b, {column, depth, 0, 0}, full, std::uint16_t{(1 << kBlocks) - 1});
  }
}

__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    matmul_kernel(Problem p, const __grid_constant__ Maps maps, unsigned* draws) {
  if constexpr (gpu::kHasHopper) {
    gpu::TileMemory shared;
    Ring ring;
    Staging staging;
    gpu::ClusterNumberRing numbers{{.readers = gpu::kConsumerThreads + gpu::kEpilogueThreads}};
    ring.take_tiles(shared);
    staging.take_rooms(shared);
    gpu::begin_rings(shared, ring, staging, numbers);
    gpu::sync_cluster();
    const TileOrder order{p, kBlocks * kRows};
    const gpu::WorkQueue queue{order.count(), draws};
    const int depths = static_cast<int>(p.K);
    const auto own_place = [&](unsigned number) {
      const Place first = order.place(number);
      return Place{first.row + static_cast<int>(gpu::block_in_cluster()) * kRows, first.column};
    };
    unsigned step = 0, piece = 0;
    gpu::run_warp_roles(
        [&] {
          const bool elected = gpu::elect_lane();
          queue.produce_by_warp(numbers, [&](unsigned number) {
            if (elected) copy_halves(ring, maps, own_place(number), depths, step);
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
            store_results(p, staging, own_place(number), piece);
          });
        });
    gpu::sync_cluster();  // the other block may still arrive at this one's barriers
  }
}

}  // namespace

void cluster(const Problem& p) {
  const unsigned clusters = static_cast<unsigned>(gpu::multiprocessors()) / kBlocks;
  gpu::launch(matmul_kernel, gpu::Grid(dim3(clusters * kBlocks), kBlocks), dim3(gpu::kRoleThreads),
              Ring::kBytes + Staging::kBytes + gpu::NumberRing::kBytes, gpu::stream(), p,
              Maps::of(p), cuda::tickets(current_stream()));
}

}  // namespace tessera::kernel_ladder::hopper
