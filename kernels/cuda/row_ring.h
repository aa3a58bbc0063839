// Rings of bulk copies: a team's next rows come while it works on this one.
//
// A kernel reads the rows of some matrices, and a team (rows.h) takes one row after the other. On sm_90 and
// sm_100 it has two or three stages in shared memory. A stage has room for a row of each matrix, and a barrier.
//
//   stage 0    | copy of row 0 | row 0 is loaded, barrier | copy of row 2 ...
//   stage 1    | copy of row 1                           | row 1 is loaded, barrier | copy of row 3 ...
//
// So the rows on their way take no registers. A thread loads the columns that it would load from global
// memory: the bits are the same. Without a ring, rows are loaded from global memory, and from sm_90 on a team
// prefetches its next row into the second-level cache.
#pragma once

#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/rows.h"

namespace tessera::gpu {

/// Whether the code now compiled has rings: on 9.0 and 10.0, where a block can have 227 KiB of shared memory. On 12.0
/// it can have 99 KiB, and few rows would fit.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
inline constexpr bool kHasRings = false;
#else
inline constexpr bool kHasRings = kHasBulkCopies;
#endif

/// The rings of a block's teams. No stages: there are no rings.
struct RowRings {
  int stages = 0;
  std::size_t bytes = 0;  // of dynamic shared memory
};

/// Rings for rows of `matrices` matrices, where `blocks` blocks share a multiprocessor, and each of them declares
/// `declared` bytes of shared memory. There are none for rows that are not aligned or have several tiles.
template <typename Layout>
RowRings row_rings(std::int64_t columns, int matrices, int blocks, std::int64_t declared = 0) {
  constexpr std::int64_t kMost = 227 * 1024;
  if (!Layout::kAligned || columns > Layout::kTile || shared_memory_limit() < kMost) return {};
  // A multiprocessor has 1 KiB more than one of its blocks can use, and every block costs 1 KiB. One more
  // is for small declarations.
  const std::int64_t room = (kMost + 1024) / blocks - 2048;
  const auto row = columns * static_cast<std::int64_t>(sizeof(typename Layout::T));
  for (const int stages : {3, 2}) {
    const std::int64_t barriers = round_up(Layout::kTeams * stages * sizeof(Barrier), 16);
    const std::int64_t bytes = barriers + Layout::kTeams * stages * matrices * row;
    if (declared + bytes <= room) return {stages, static_cast<std::size_t>(bytes)};
  }
  return {};
}

/// Blocks of a kernel whose teams take `rows` rows in turn. With rings these are all that the multiprocessors
/// hold, so that rows of one time are neighbours; else there is a team for each row.
template <typename Layout>
unsigned ring_blocks(const RowRings& rings, std::int64_t rows, int blocks) {
  return blocks_for(rows, Layout::kTeams,
                    rings.stages > 0 ? std::int64_t{multiprocessors()} * blocks : INT32_MAX);
}

/// A team's ring. All threads of the team call its functions.
template <typename Layout, int kMatrices>
class RowRing {
  using T = typename Layout::T;
  static_assert(Layout::kTeam >= kWarpSize, "a team has a barrier");

 public:
  /// For the rows first, first + step, ... before `end`. Null matrices, the last ones, are skipped. Waits for the
  /// launch ahead at first: ptxas spills registers if barriers are initialized before.
  __device__ RowRing(const T* const (&matrices)[kMatrices], std::int64_t columns, int stages,
                     std::int64_t first, std::int64_t step, std::int64_t end)
      : columns_(columns), step_(step), end_(end), stages_(kFetches && kHasRings ? stages : 0) {
    wait_for_launch_ahead();
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
      matrices_[i] = matrices[i];
      if (matrices[i] != nullptr) count_ = i + 1;
    }
    if constexpr (kFetches) {
      if (stages_ == 0) return;
      if (Layout::is_first_of_team()) {
        for (turn_ = 0; turn_ < stages_; ++turn_) initialize(full(), 1);
        publish_barriers();
      }
      for (turn_ = 0; turn_ < stages_; ++turn_) fetch(first + turn_ * step);
      turn_ = 0;
      team_barrier();
    }
  }

  /// Waits for row n, the next one.
  __device__ void wait(std::int64_t n) {
    n_ = n;
    if constexpr (kFetches) {
      stages_ > 0 ? gpu::wait(full(), turn_ >= stages_ ? 1 : 0) : fetch(n + step_);
    }
  }
  /// Loads the tile that begins at column c of the row in matrix i.
  __device__ void load(RowTile<Layout>& tile, int i, std::int64_t c) const {
    if (stages_ > 0) {
      tile.load(place(i), columns_);
    } else {
      tile.load(matrices_[i] + n_ * columns_ + c, columns_ - c);
    }
  }
  /// Loads that tile of the first matrix. With `sum`, adds the second matrix's, rounded to T, and stores the result in
  /// `sum`, which is a matrix of as many columns.
  __device__ void load_sum(RowTile<Layout>& tile, std::int64_t c, T* sum) const {
    load(tile, 0, c);
    if (sum == nullptr) return;
    RowTile<Layout> addend;
    load(addend, 1, c);
    tile.add(addend);
    tile.store(sum + n_ * columns_ + c, columns_ - c);
  }
  /// The team does not load the row again. The stage takes the row that follows those in the other stages.
  __device__ void release() {
    if (stages_ == 0) return;
    team_barrier();
    fetch(n_ + stages_ * step_);
    if (++turn_ == 2 * stages_) turn_ = 0;
  }

 private:
  static constexpr bool kFetches = kHasBulkCopies && Layout::kAligned;

  // Addresses are computed where they are used, so that they take no registers.
  __device__ int slot() const {
    return (Layout::kTeams > 1 ? Layout::team_of_thread() * stages_ : 0) +
           (turn_ >= stages_ ? turn_ - stages_ : turn_);
  }
  __device__ Barrier& full() const {
    SharedMemory shared;
    return shared.take<Barrier>(Layout::kTeams * stages_)[slot()];
  }
  __device__ T* place(int i) const {
    SharedMemory shared;
    shared.take<Barrier>(Layout::kTeams * stages_);
    const int columns = static_cast<int>(columns_);
    return shared.take<T>(Layout::kTeams * stages_ * count_ * columns) +
           (slot() * count_ + i) * columns;
  }

  __device__ void fetch(std::int64_t n) const {
    if constexpr (kFetches) {
      if (n >= end_ || !Layout::is_first_of_team()) return;
      const int bytes = static_cast<int>(columns_ * sizeof(T));
      if (stages_ > 0) arrive_and_expect(full(), count_ * bytes);
#pragma unroll
      for (int i = 0; i < kMatrices; ++i) {
        if (matrices_[i] == nullptr) continue;
        const T* const from = matrices_[i] + n * columns_;
        stages_ > 0 ? copy_bytes(place(i), from, bytes, full()) : prefetch_bytes(from, bytes);
      }
    }
  }
  __device__ static void team_barrier() {
    if constexpr (Layout::kTeam > kWarpSize) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  const T* matrices_[kMatrices];
  int count_ = 0;
  std::int64_t columns_, step_, end_, n_ = 0;
  int stages_;
  int turn_ = 0;  // of the next row, among 2 * stages_: even and odd phases of the barriers
};

}  // namespace tessera::gpu
