// How the producer of a product on Hopper gathers the rows of tokens (sm_90a).
//
// A tensor map copies a box. The tokens of an expert's rows are anywhere, so the 32 lanes of the producer's warp
// copy their rows themselves (cp.async), 16 bytes each, to the places that a map would have filled:
//
//   dispatched rows     slots 17 3 40 9 ...  of k for each token:  tokens 2 0 5 1 ...
//   an instruction      four rows of a panel: eight lanes for the 128 bytes of a row
//   panel               chunk c (16 bytes) of row r is at c ^ (r % 8): no bank conflicts
//
// wgmma reads shared memory as the copy engine does, past the order of ordinary writes. So a lane waits for its
// copies of a step, fences, and arrives at the stage's barrier. The engine's bytes of the other operand are
// counted by the same barrier. Meanwhile the lane's copies of the next steps are in flight:
//
//   lane        start 0 | start 1 | wait 0, fence, arrive 0 | start 2 | wait 1, fence, arrive 1 | ...
//   engine      other 0 | other 1 |                           other 2 | ...
//
// Rows behind the expert's last, and columns behind a row's end, are zeros, and nothing is read for them.
#pragma once

#include <algorithm>

#include "kernels/cuda/tile_ring.h"
#include "kernels/grouped_matmul/hopper/work.h"

namespace tessera::cuda::groups {

/// The slots of kRows neighbouring dispatched rows: lane l has the slots of rows l, l + 32, and so on.
template <int kRows>
struct SlotsOfRows {
  int slots[kRows / 32];  // -1 behind the last row

  /// The rows from `first` on. There are `count`, or more than kRows.
  __device__ void load(const std::int32_t* of_rows, std::int64_t first, int count) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      const int row = 32 * i + lane;
      slots[i] = row < count ? of_rows[first + row] : -1;
    }
  }
};

/// Copies of tokens' rows to a tile [kRows, kChannels].
template <typename T>
struct RowsOfTokens {
  const T* tokens;
  int per_token, columns;  // slots of a token, and elements of its row

  /// Starts to copy the columns from `column` on.
  template <int kRows, int kChannels>
  __device__ void start(const gpu::PanelTile<T, kRows, kChannels>& tile,
                        const SlotsOfRows<kRows>& rows, int column) const {
    constexpr int kChunks = 8, kWidth = 16 / sizeof(T), kRowsTogether = 32 / kChunks;
    constexpr int kPanels = kChannels / gpu::kPanel;
    [[maybe_unused]] constexpr int kUnrolled = 8 / kPanels;  // eight addresses fit into registers
    const int lane = static_cast<int>(threadIdx.x % 32), chunk = lane % kChunks;
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      const int slot = rows.slots[i];
      const int own = slot < 0 ? slot : slot / per_token;
#pragma unroll kUnrolled
      for (int j = 0; j < 32; j += kRowsTogether) {
        const int token = __shfl_sync(gpu::kFullWarp, own, j + lane / kChunks);
        const int row = 32 * i + j + lane / kChunks;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
          const int from = column + panel * gpu::kPanel + chunk * kWidth;
          const bool inside = token >= 0 && from < columns;
          const T* const source = inside ? tokens + std::int64_t{token} * columns + from : tokens;
          gpu::copy_async(tile.chunk(panel, row, chunk), source, inside ? 16 : 0);
        }
      }
    }
  }
};

/// The steps whose rows the producer's warp has begun to copy, and has not arrived for.
template <typename Ring>
struct StepsUnderWay {
  /// So many at most. A stage is free when the next step's products have begun, so that one must have arrived.
  static constexpr int kMost = std::max(1, Ring::kCount / 2);
  static_assert(kMost <= Ring::kCount - 2);
  const Ring& ring;
  int count = 0;

  /// All copies of step `tile` have been started.
  __device__ void add(unsigned tile) {
    gpu::copy_async_commit();
    if (++count > kMost) arrive<kMost>(tile);
  }
  /// Step `tile` was the last one.
  __device__ void finish(unsigned tile) { arrive<0>(tile); }

 private:
  /// Waits until the copies of all steps but the last kLeft have arrived.
  template <int kLeft>
  __device__ void arrive(unsigned tile) {
    gpu::copy_async_wait<kLeft>();
    gpu::fence_shared_for_engines();
    for (; count > kLeft; --count) gpu::arrive(ring.filled(tile - count + 1));
  }
};

/// The producer's part for an operand that is gathered. All lanes of its warp call the functions.
template <Direction kDirection, Gathered kGathered, typename Problem, typename Ring>
class Gatherer {
 public:
  __device__ Gatherer(const Problem& problem, const Ring& ring)
      : slots_(problem.slots),
        source_{kOfA ? problem.a : problem.b, problem.per_token,
                static_cast<int>(!kOfA        ? problem.N
                                 : kOfWeights ? problem.M
                                              : problem.K)},
        ring_(ring),
        under_way_{ring} {}

  template <typename Work>
  __device__ void begin(const Work& work) {
    rows_.load(slots_, place(work).token, kOfWeights ? work.depth : work.rows);
  }
  /// Starts the copies of a step. A lane has waited until its stage is free.
  template <typename Work>
  __device__ void start(const Work& work, int depth, unsigned tile) {
    __syncwarp();  // orders its wait before the other lanes' copies; a shuffle orders no memory
    const auto to = ring_.tile(tile).gathered();
    if constexpr (kOfWeights) {
      const Rows rows = rows_;
      const int next = depth + kStepDepth;  // its slots are on their way during the copies
      rows_.load(slots_, place(work).token + next, work.depth - next);
      source_.start(to, rows, place(work).channel);
    } else {
      source_.start(to, rows_, depth);
    }
    under_way_.add(tile);
  }
  /// Before the producer waits for the readers of the next number, all work but this one must be complete:
  /// they take it after theirs.
  template <typename Work>
  __device__ void end(const Work& work, unsigned tile) {
    if (work.depth < under_way_.kMost * kStepDepth) finish(tile);
  }
  __device__ void finish(unsigned tile) { under_way_.finish(tile); }

 private:
  static constexpr bool kOfWeights = kDirection == Direction::weights;
  static constexpr bool kOfA = kGathered == Gathered::a;
  using Rows = SlotsOfRows<kOfWeights ? kStepDepth : kTileRows>;

  template <typename Work>
  __device__ static const gpu::TilePlace& place(const Work& work) {
    return kOfA ? work.a : work.b;
  }

  const std::int32_t* slots_;
  RowsOfTokens<typename Ring::Element> source_;
  const Ring& ring_;
  StepsUnderWay<Ring> under_way_;
  Rows rows_;
};

template <Direction kDirection, typename Problem, typename Ring>
struct Gatherer<kDirection, Gathered::none, Problem, Ring> {
  __device__ Gatherer(const Problem&, const Ring&) {}
  template <typename Work>
  __device__ void begin(const Work&) {}
  template <typename Work>
  __device__ void start(const Work&, int, unsigned) {}
  template <typename Work>
  __device__ void end(const Work&, unsigned) {}
  __device__ void finish(unsigned) {}
};

}  // namespace tessera::cuda::groups
