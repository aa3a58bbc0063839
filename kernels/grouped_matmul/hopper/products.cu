// Grouped products on Hopper's tensor cores (wgmma, sm_90a): 128 x 256 tiles of c, or 128 x 128.
//
// A thread block is a producer and two consumers, each a warpgroup. One thread of the producer starts
// the copies, 64 depths at a time; a ring of stages takes them. Each consumer owns 64 rows of the tile:
//
//   producer     a0 b0   a1 b1   a2 b2   a3 b3 | a4 b4 ...         waits for free stages
//   consumer 0   [c += a0 b0] [c += a1 b1] ...          store      rows 0 to 63
//   consumer 1   [c += a0 b0] [c += a1 b1] ...          store      rows 64 to 127
//
// [...] are the tensor cores. While the consumers store, the producer is at the next tile's operands.
//
// Tiles begin at an expert's first row and may run over its last. Rows of c are masked at the store.
// Where rows are depths (the weights' gradient), the consumers overwrite those of the next expert with
// zeros: 0 times NaN is NaN, so it is done in both operands. A sum over k is one chain, from the
// first depth on in steps of 16: its bits depend neither on the tile nor on the other experts.
//
// Where c is gate and up, a consumer has both of a column in its registers, and stores silu(gate) * up
// as well. A kernel of its own would read c again: 4 bytes for each element of the result in 16 bits.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/sigmoid.h"
#include "kernels/cuda/work_queue.h"
#include "kernels/grouped_matmul/hopper/launch.h"
#include "kernels/grouped_matmul/hopper/store.h"
#include "kernels/grouped_matmul/hopper/tiles.h"
#include "kernels/grouped_matmul/hopper/work.h"
#include "runtime/cuda/stream.h"

namespace tessera::cuda::groups {
namespace {

/// By one warp: starts the copies of all steps, in the order in which the consumers take them.
template <typename List, typename Ring>
__device__ void produce(const List& list, const gpu::WorkQueue& queue,
                        const gpu::NumberRing& numbers, const TensorMaps& maps, const Ring& ring) {
  const bool elected = gpu::elect_lane();
  unsigned tile = 0;
  queue.produce_by_warp(numbers, [&](unsigned number) {
    const auto work = list.find(number);
    for (int depth = 0; depth < work.depth; depth += kStepDepth, ++tile) {
      if (elected) ring.tile(tile).load(maps, work, depth, ring.begin_fill(tile));
    }
  });
}

/// A consumer: 64 rows of each tile.
template <Direction kDirection, int kColumns, Result kResult, typename T, typename U, typename Ring>
struct Consumer {
  static constexpr bool kOfWeights = kDirection == Direction::weights;
  const Problem<T, U>& problem;
  const Ring& ring;
  unsigned tile = 0;
  gpu::ConsumerRows rows;

  /// Not a member: registers of a whole tile are not kept from one to the next.
  using Sums = float[kColumns / 8][4];

  /// Waits for a step's tiles, and hides the rows of other experts among the depths.
  __device__ auto wait(const Work<U>& work, int depth) const {
    const auto tiles = ring.wait(tile);
    if (kOfWeights && work.depth - depth < kStepDepth) {
      gpu::clear_rows(work.depth - depth, tiles.left(), tiles.right());
    }
    return tiles;
  }

  /// One group of products is in flight while the next one's tiles are waited for.
  __device__ void add_up(Sums& sum, const Work<U>& work) {
    for (int depth = 0; depth < work.depth; depth += kStepDepth, ++tile) {
      wait(work, depth).start_products(sum, rows.group, depth > 0);
      if (depth == 0) continue;
      gpu::wait_products<1>();
      ring.release(tile - 1);
    }
    gpu::wait_products<0>(sum);
    ring.release(tile - 1);
  }
  /// A consumer whose rows are all behind the expert's last.
  __device__ void pass_by(const Work<U>& work) {
    for (int depth = 0; depth < work.depth; depth += kStepDepth, ++tile) {
      wait(work, depth);
      ring.release(tile);
    }
  }

  __device__ void store(const Sums& sum, const Work<U>& work) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = rows.warp_of_block() + 8 * half + static_cast<int>(threadIdx.x % 32 / 4);
#pragma unroll
      for (int n = 0; n < kColumns / 8 / kSectionsOf<kResult>; n += 4) {
        if (8 * n >= work.columns) break;
        kResult == Result::gated ? store_gated(sum, work, row, half, n)
                                 : store_product(sum, work, row, half, n);
      }
    }
  }
  /// Four pieces of a lane's sums in one row, from piece n on.
  __device__ static void take(float (&values)[4][2], const Sums& sum, int half, int n) {
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      values[piece][0] = sum[n + piece][2 * half];
      values[piece][1] = sum[n + piece][2 * half + 1];
    }
  }
  /// Stores them, or adds them to what is there. `to` is the row's first element in the tile.
  __device__ void store_pieces(U* to, const Work<U>& work, int row, int n,
                               const float (&values)[4][2]) const {
    store_columns(to + 8 * n, work.columns - 8 * n, row < work.rows, values,
                  kOfWeights && problem.accumulate);
  }
  __device__ void store_product(const Sums& sum, const Work<U>& work, int row, int half,
                                int n) const {
    float values[4][2];
    take(values, sum, half, n);
    store_pieces(work.c + row * problem.N, work, row, n, values);
  }
  /// SwiGLU takes gate and up as they are stored, so that its bits are those of a kernel of its own.
  __device__ void store_gated(const Sums& sum, const Work<U>& work, int row, int half,
                              int n) const {
    U* const gates = work.c + row * problem.N;
    float gate[4][2], up[4][2];
    take(gate, sum, half, n);
    take(up, sum, half, kColumns / 16 + n);
    store_pieces(gates, work, row, n, gate);
    store_pieces(gates + work.section, work, row, n, up);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& value = gate[i / 2][i % 2];
      value = gpu::swiglu(gpu::rounded<U>(value), gpu::rounded<U>(up[i / 2][i % 2]));
    }
    store_pieces(work.gated + row * std::int64_t{work.section}, work, row, n, gate);
  }

  __device__ void visit(const Work<U>& work) {
    if (rows.first() >= work.rows) return pass_by(work);
    Sums sum;
    if (work.depth > 0) {
      add_up(sum, work);
    } else {
      if (problem.accumulate) return;
#pragma unroll
      for (auto& piece : sum) piece[0] = piece[1] = piece[2] = piece[3] = 0.0f;
    }
    store(sum, work);
  }
};

template <Direction kDirection, int kColumns, Result kResult, typename T, typename U>
__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    grouped_hopper_kernel(const Problem<T, U> problem, const __grid_constant__ TensorMaps maps,
                          unsigned* draws) {
  if constexpr (gpu::kHasHopper) {
    using Ring = groups::Ring<StepTiles<T, kDirection, kColumns, kResult>>;
    gpu::TileMemory shared;
    Ring ring;
    gpu::NumberRing numbers;
    ring.take_tiles(shared);
    gpu::begin_rings(shared, ring, numbers);
    const WorkList<kDirection, kColumns, kResult, T, U> list{problem};
    const gpu::WorkQueue queue{list.count(), draws};
    gpu::run_warp_roles(
        [&] { produce(list, queue, numbers, maps, ring); },
        [&] {
          Consumer<kDirection, kColumns, kResult, T, U, Ring> consumer{problem, ring};
          queue.consume(numbers,
                        [&](unsigned number, unsigned) { consumer.visit(list.find(number)); });
        });
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

template <Direction kDirection, int kColumns, Result kResult, typename T, typename U>
void launch(const Problem<T, U>& p) {
  using Tiles = StepTiles<T, kDirection, kColumns, kResult>;
  constexpr bool kOfWeights = kDirection == Direction::weights;
  const std::int64_t K = p.K, N = p.N;
  const TensorMaps maps{map_of(p.a, 1, p.P, kOfWeights ? p.M : K, Tiles::kLeftRows),
                        kOfWeights           ? map_of(p.b, 1, p.P, N, Tiles::kRightRows)
                        : Tiles::kTransposed ? map_of(p.b, p.matrices, N, K, Tiles::kRightRows)
                                             : map_of(p.b, p.matrices, K, N, Tiles::kRightRows)};
  gpu::launch(grouped_hopper_kernel<kDirection, kColumns, kResult, T, U>,
              dim3(static_cast<unsigned>(gpu::multiprocessors())), dim3(gpu::kRoleThreads),
              Ring<Tiles>::kBytes + gpu::NumberRing::kBytes, gpu::stream(), p, maps,
              tickets(current_stream()));
}

/// A wide tile reads less per product. Narrow ones are taken where wide ones would be half empty, and
/// where a weight has few tiles: an expert's rows are not shared out, so that a large expert's few
/// tiles would keep few multiprocessors busy. Only the shape of one expert's product decides.
template <Direction kDirection, Result kResult, typename T, typename U>
void launch(const Problem<T, U>& p) {
  constexpr std::int64_t kEnough = 32;
  const bool few =
      kDirection == Direction::weights && ceil_div(p.M, kTileRows) * ceil_div(p.N, 256) < kEnough;
  p.N <= 128 || few ? launch<kDirection, 128, kResult>(p) : launch<kDirection, 256, kResult>(p);
}

template <Result kResult, typename T>
void launch_rows(const Problem<T, T>& p) {
  p.transpose_b ? launch<Direction::rows_transposed, kResult>(p)
                : launch<Direction::rows, kResult>(p);
}

}  // namespace

template <typename T, typename U>
bool suits_hopper(const Problem<T, U>& p) {
  // The copy engine takes no empty tensors, and 32-bit places. Parts of sums are for mma.sync.
  if (!p.of_weights && (p.depths < p.K || sizeof(U) > sizeof(T))) return false;
  return gpu::has_hopper() && p.P > 0 && (p.of_weights || p.K > 0) &&
         std::max({p.M, p.N, p.K}) <= INT32_MAX;
}

template <typename T, typename U>
void multiply_on_hopper(const Problem<T, U>& p) {
  if (p.of_weights) return launch<Direction::weights, Result::product>(p);
  if constexpr (std::is_same_v<T, U>) {
    p.gated != nullptr ? launch_rows<Result::gated>(p) : launch_rows<Result::product>(p);
  }
}

#define TESSERA_INSTANTIATE(T, U)                     \
  template bool suits_hopper(const Problem<T, U>& p); \
  template void multiply_on_hopper(const Problem<T, U>& p);
TESSERA_INSTANTIATE(bfloat16, bfloat16)
TESSERA_INSTANTIATE(bfloat16, float)
TESSERA_INSTANTIATE(float16, float16)
TESSERA_INSTANTIATE(float16, float)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::cuda::groups
