// A step's operands in shared memory, and a consumer's products with them (sm_90a).
//
//   direction         tile of a                tile of b
//   rows              128 rows x 64 depths     64 depths x 128 or 256 columns
//   rows_transposed   128 rows x 64 depths     128 or 256 columns x 64 depths
//   weights           64 depths x 128 rows     64 depths x 128 or 256 columns
//
// The tile of b comes in two parts, each with half of the columns. In a cluster of two blocks each block copies
// one part to both: their tiles of c are below each other, and share b.
//
// Where columns are gate and up, half of a tile's are gate's and half are the same ones of up. The
// epilogue then has both:
//
//   columns of b     0 ... F - 1      F ... 2 F - 1
//                      [gate]            [up]          two copies, side by side in shared memory
#pragma once

#include <type_traits>

#include "kernels/cuda/cluster_ring.h"
#include "kernels/cuda/panel_tile.h"
#include "kernels/grouped_matmul/hopper/work.h"

namespace tessera::cuda::groups {

struct TensorMaps {
  gpu::TensorMap a, b;
};

/// The tiles of both operands for a step.
template <typename T, Direction kDirection, int kColumns, Result kResult,
          Gathered kGathered = Gathered::none>
struct StepTiles {
  static constexpr bool kOfWeights = kDirection == Direction::weights;
  static constexpr bool kTransposed = kDirection == Direction::rows_transposed;
  using Left = std::conditional_t<kOfWeights, gpu::PanelTile<T, kStepDepth, kTileRows>,
                                  gpu::PanelTile<T, kTileRows, kStepDepth>>;
  using Right = std::conditional_t<kTransposed, gpu::PanelTile<T, kColumns, kStepDepth>,
                                   gpu::PanelTile<T, kStepDepth, kColumns>>;
  /// A copy of b's columns. The right tile has two: one for each section, if there are two.
  static constexpr int kParts = 2, kCopied = kColumns / kParts;
  using Copy = std::conditional_t<kTransposed, gpu::PanelTile<T, kCopied, kStepDepth>,
                                  gpu::PanelTile<T, kStepDepth, kCopied>>;
  using Element = T;
  static constexpr int kElements = Left::kElements + Right::kElements;
  /// The copy engine's part of them. 32 lanes copy the others (gather.h).
  static constexpr int kBytes = (kGathered == Gathered::a ? 0 : Left::kBytes) +
                                (kGathered == Gathered::b ? 0 : Right::kBytes);
  static constexpr int kFills = kGathered == Gathered::none ? 1 : 1 + 32;
  static constexpr int kRightRows = kTransposed ? kCopied : kStepDepth;
  static constexpr int kLeftRows = kOfWeights ? kStepDepth : kTileRows;
  T* data;

  __device__ Left left() const { return {data}; }
  __device__ Right right() const { return {data + Left::kElements}; }

  /// By one thread of each block: starts the engine's copies for it, of depths from `depth` on.
  template <typename U>
  __device__ void load(const TensorMaps& maps, const Work<U>& work, int depth,
                       gpu::Barrier& barrier) const {
    gpu::TilePlace a = work.a, b = work.b;
    (kOfWeights ? a.token : a.channel) += depth;
    (kTransposed ? b.channel : b.token) += depth;
    if (kGathered != Gathered::a) left().load(maps.a, a, barrier);
    if (kGathered == Gathered::b) return;
    const int step = kSectionsOf<kResult> == kParts ? work.section : kCopied;
    const auto blocks = static_cast<int>(gpu::blocks_of_cluster());
    for (auto part = static_cast<int>(gpu::block_in_cluster()); part < kParts; part += blocks) {
      gpu::TilePlace from = b;
      (kTransposed ? from.token : from.channel) += part * step;
      const Copy copy{right().data + part * Copy::kElements};
      copy.load(maps.b, from, barrier, static_cast<std::uint16_t>((1 << blocks) - 1));
    }
  }

  /// The tile of the operand that is gathered.
  __device__ auto gathered() const {
    static_assert(kGathered != Gathered::none);
    if constexpr (kGathered == Gathered::a) {
      return left();
    } else {
      return right();
    }
  }

  /// Starts sum += a b for the rows of consumer `group`, or sum = a b.
  __device__ void start_products(float (&sum)[kColumns / 8][4], int group, bool add) const {
    constexpr auto kLeft =
        kOfWeights ? gpu::LeftPanels::of_columns_of_a : gpu::LeftPanels::of_rows_of_a;
    constexpr auto kRight = kTransposed ? gpu::Panels::of_columns_of_b : gpu::Panels::of_rows_of_b;
    gpu::begin_products();
#pragma unroll
    for (int step = 0; step < kStepDepth / 16; ++step) {
      const auto a = kOfWeights ? left().columns(step, group) : left().rows(64 * group, step);
      const auto b = kTransposed ? right().rows(0, step) : right().columns(step);
      gpu::multiply_tiles<T, kRight, kColumns, kLeft>(sum, a, b, add || step > 0);
    }
    gpu::commit_products();
  }
};

}  // namespace tessera::cuda::groups
