// Grouped products on Hopper's tensor cores (wgmma, sm_90a): 128 x 256 tiles of c, or 128 x 128.
//
// A thread block is a producer, an epilogue and two consumers: a warp, three warps, and two warpgroups. One
// thread of the producer starts the copies, 64 depths at a time; a ring of stages takes them. Each consumer
// owns 64 rows of the tile. It leaves its results in shared memory (staging.h), and the epilogue stores them:
//
//   producer     a0 b0   a1 b1   a2 b2 | a3 b3   a4 b4   a5 b5 | ...       waits for free stages
//   consumer 0   [c += a0 b0] [c += a1 b1] [...] put [c = a3 b3] ...       rows 0 to 63
//   consumer 1   [c += a0 b0] [c += a1 b1] [...] put [c = a3 b3] ...       rows 64 to 127
//   epilogue                                         store                 both
//
// [...] are the tensor cores. So they pause for as long as it takes to empty the registers, and not for
// the stores and the computation before them.
//
// Two blocks that share b's tile are a cluster: each copies half of it to both (kernels/cuda/cluster_ring.h).
// A step of a wide tile takes 32 KB from the second-level cache in place of 48.
//
// Tiles begin at an expert's first row and may run over its last. Rows of c are masked at the store.
// Where rows are depths (the weights' gradient), the consumers overwrite those of the next expert with
// zeros: 0 times NaN is NaN, so it is done in both operands. A sum over k is one chain, from the
// first depth on in steps of 16: its bits depend neither on the tile nor on the other experts.
//
// Where c is gate and up, a tile has both of a column, and the epilogue stores silu(gate) * up as well. A
// kernel of its own would read c again: 4 bytes for each element of the result in 16 bits. Where the product
// is the gradient of that, the epilogue reads gate and up and stores their gradients. The product is not
// stored. Rows of experts are weighed, too: the epilogue stores the weighed rows once more, and each tile's
// part of the weights' gradients.
//
// The rows of an operand may be tokens' rows. The producer's warp gathers them (gather.h), and the copy engine
// copies the other operand.
//
// 8-bit numbers are copied and placed as pairs, so a step of the same bytes has twice the depths. Their tiles are
// narrow: a consumer has two sums for each element of c, that of a step and that of all.
#pragma once

#include <type_traits>

#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/work_queue.h"
#include "kernels/grouped_matmul/hopper/consumer.h"
#include "kernels/grouped_matmul/hopper/epilogue.h"
#include "kernels/grouped_matmul/hopper/gather.h"
#include "kernels/grouped_matmul/hopper/launch.h"
#include "kernels/grouped_matmul/hopper/staging.h"
#include "kernels/grouped_matmul/hopper/tiles.h"
#include "kernels/grouped_matmul/hopper/work.h"
#include "runtime/cuda/stream.h"

namespace tessera::cuda::groups {

/// By one warp: starts the copies of all steps, in the order in which the consumers take them.
template <typename Gatherer, typename List, typename Ring>
__device__ void produce(const List& list, const gpu::WorkQueue& queue,
                        const gpu::ClusterNumberRing& numbers, const TensorMaps& maps,
                        const Ring& ring) {
  const bool elected = gpu::elect_lane();
  unsigned tile = 0;
  Gatherer gatherer(list.p, ring);
  queue.produce_by_warp(numbers, [&](unsigned number) {
    const auto work = list.find(number);
    gatherer.begin(work);
    for (int depth = 0; depth < work.depth; depth += kStepDepth, ++tile) {
      if (elected) ring.tile(tile).load(maps, work, depth, ring.begin_fill(tile));
      gatherer.start(work, depth, tile);
    }
    gatherer.end(work, tile - 1);
  });
  gatherer.finish(tile - 1);
}

/// A thread block's shared memory: as many stages as there is room for next to the staging.
template <Direction kDirection, int kColumns, Result kResult, Gathered kGathered, typename T,
          typename U>
struct Memory {
  using Tiles = StepTiles<T, kDirection, kColumns, kResult, kGathered>;
  using Staging =
      groups::Staging<std::conditional_t<kDirection == Direction::weights, float, U>, kColumns>;
  static constexpr std::size_t kOthers = Staging::kBytes + gpu::NumberRing::kBytes;
  static constexpr std::size_t kOfStage = Tiles::kElements * sizeof(T) + 2 * sizeof(gpu::Barrier);
  using Ring = gpu::ClusterRing<Tiles, int{(227 * 1024 - kOthers) / kOfStage}, Tiles::kFills>;
  static constexpr std::size_t kBytes = Ring::kBytes + kOthers;
  Ring ring;
  Staging staging;
  gpu::ClusterNumberRing numbers{{.readers = gpu::kConsumerThreads + gpu::kEpilogueThreads}};

  __device__ Memory() {
    gpu::TileMemory shared;
    ring.take_tiles(shared);
    staging.take_rooms(shared);
    gpu::begin_rings(shared, ring, staging, numbers);
    gpu::sync_cluster();
  }
};

template <Direction kDirection, int kColumns, Result kResult, Gathered kGathered, typename T,
          typename U>
__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    grouped_hopper_kernel(const Problem<T, U> problem, const __grid_constant__ TensorMaps maps,
                          unsigned* draws) {
  if constexpr (gpu::kHasHopper) {
    using Memory = groups::Memory<kDirection, kColumns, kResult, kGathered, T, U>;
    const Memory memory;
    const WorkList<kDirection, kColumns, kResult, T, U> list{problem};
    const gpu::WorkQueue queue{list.count(), draws};
    const auto visit_all = [&](auto role) {
      queue.consume(memory.numbers,
                    [&](unsigned number, unsigned) { role.visit(list.find(number)); });
    };
    using Consumer = groups::Consumer<kDirection, kColumns, kResult, Problem<T, U>,
                                      typename Memory::Ring, typename Memory::Staging>;
    using Epilogue = groups::Epilogue<kResult, Problem<T, U>, typename Memory::Staging>;
    using Gatherer = groups::Gatherer<kDirection, kGathered, Problem<T, U>, typename Memory::Ring>;
    gpu::run_warp_roles([&] { produce<Gatherer>(list, queue, memory.numbers, maps, memory.ring); },
                        [&] {
                          visit_all(Consumer{problem, memory.ring, memory.staging});
                        },
                        [&] {
                          visit_all(Epilogue{problem, memory.staging});
                        });
    gpu::sync_cluster();  // the other block may still arrive at this one's barriers
  }
}

/// The map of a list of matrices [rows, columns] without gaps.
template <typename T>
gpu::TensorMap map_of(const T* data, std::int64_t matrices, std::int64_t rows, std::int64_t columns,
                      int tile_rows) {
  constexpr std::int64_t kBytes = sizeof(T);
  return gpu::tensor_map(data,
                         {.channels = columns,
                          .tokens = rows,
                          .heads = matrices,
                          .batch = 1,
                          .token_stride = columns * kBytes,
                          .head_stride = rows * columns * kBytes,
                          .batch_stride = matrices * rows * columns * kBytes},
                         tile_rows);
}

/// The blocks of a cluster: one, where of two more than a sixteenth would have tiles without rows. The last
/// two of each expert have one with even odds. (The host does not know the experts' rows.) One, too, where b is
/// gathered: the copy engine alone copies to several blocks.
template <typename T, typename U>
unsigned blocks_of_cluster(const Problem<T, U>& p) {
  if (p.gathered == Gathered::b) return 1;
  const std::int64_t tiles = ceil_div(p.of_weights ? p.M : p.P, std::int64_t{kTileRows});
  const bool one = p.of_weights || p.offsets == nullptr;
  const std::int64_t idle = one ? tiles % 2 : (p.experts + 1) / 2;
  return 16 * idle <= tiles ? 2 : 1;
}

template <Direction kDirection, int kColumns, Result kResult, Gathered kGathered, typename T,
          typename U>
void launch(const Problem<T, U>& p) {
  using Memory = groups::Memory<kDirection, kColumns, kResult, kGathered, T, U>;
  using Tiles = typename Memory::Tiles;
  constexpr bool kOfWeights = kDirection == Direction::weights;
  const std::int64_t K = p.K, N = p.N;
  TensorMaps maps = {};
  if (kGathered != Gathered::a) {
    maps.a = map_of(p.a, 1, p.P, kOfWeights ? p.M : K, Tiles::kLeftRows);
  }
  if (kGathered != Gathered::b) {
    maps.b = kOfWeights           ? map_of(p.b, 1, p.P, N, Tiles::kRightRows)
             : Tiles::kTransposed ? map_of(p.b, p.matrices, N, K, Tiles::kRightRows)
                                  : map_of(p.b, p.matrices, K, N, Tiles::kRightRows);
  }
  const unsigned cluster = blocks_of_cluster(p);
  const unsigned clusters = static_cast<unsigned>(gpu::multiprocessors()) / cluster;
  gpu::launch_early(grouped_hopper_kernel<kDirection, kColumns, kResult, kGathered, T, U>,
                    gpu::Grid(dim3(clusters * cluster), cluster), dim3(gpu::kRoleThreads),
                    Memory::kBytes, gpu::stream(), p, maps, tickets(current_stream()));
}

/// A wide tile reads less per product. Narrow ones are taken where wide ones would be half empty, and
/// where a weight has few tiles: an expert's rows are not shared out, so that a large expert's few
/// tiles would keep few multiprocessors busy. Only the shape of one expert's product decides.
template <Direction kDirection, Result kResult, Gathered kGathered = Gathered::none, typename T,
          typename U>
void launch(const Problem<T, U>& p) {
  constexpr std::int64_t kEnough = 32;
  const bool few =
      kDirection == Direction::weights && ceil_div(p.M, kTileRows) * ceil_div(p.N, 256) < kEnough;
  columns_of_tile(p.N) == 128 || few ? launch<kDirection, 128, kResult, kGathered>(p)
                                     : launch<kDirection, 256, kResult, kGathered>(p);
}

template <Result kResult, Gathered kGathered = Gathered::none, typename T>
void launch_rows(const Problem<T, T>& p) {
  p.transpose_b ? launch<Direction::rows_transposed, kResult, kGathered>(p)
                : launch<Direction::rows, kResult, kGathered>(p);
}

}  // namespace tessera::cuda::groups
