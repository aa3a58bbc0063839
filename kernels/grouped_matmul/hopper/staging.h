// Results on their way from the consumers to the epilogue, through shared memory (sm_90a).
//
// Each consumer has a room of 64 rows of at most 512 bytes. Results that the epilogue stores as they are
// have 16 bits there, so that the room takes the whole tile. Weights' gradients are f32, because they may be
// added to others before they are rounded. A wide tile of them goes in two pieces of 128 columns:
//
//   consumer     [tile 0 ....] put   [tile 1 ....] put   [tile 2 ....]         [...] are the tensor cores
//   epilogue                   store 0             store 1
//
// A room has two barriers, as a stage of a ring has (kernels/cuda/tile_ring.h). Chunk c (16 bytes) of row r
// is at c ^ swizzle(r). So neither the writes of a fragment's eight rows nor the reads along one row have
// bank conflicts.
#pragma once

#include <algorithm>

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/tile_ring.h"

namespace tessera::cuda::groups {

/// The rooms of both consumers, for tiles of kColumns columns in elements S.
template <typename S, int kColumns>
struct Staging {
  using Element = S;
  static constexpr int kSize = sizeof(S), kChunk = 16;  // bytes of an element and of a chunk
  static constexpr int kWidth = kChunk / kSize;         // elements of a chunk
  static constexpr int kTileRowBytes = kColumns * kSize, kRowBytes = std::min(512, kTileRowBytes);
  static constexpr int kRows = 64;
  static constexpr int kPieceColumns = kRowBytes / kSize;
  static constexpr int kPieces = kColumns / kPieceColumns;
  static constexpr int kRoomBytes = kRows * kRowBytes;
  static constexpr std::size_t kBytes = gpu::kConsumers * (kRoomBytes + 2 * sizeof(gpu::Barrier));
  unsigned char* rooms;
  gpu::Barrier* full;
  gpu::Barrier* empty;

  __device__ void take_rooms(gpu::TileMemory& shared) {
    rooms = shared.take<unsigned char>(gpu::kConsumers * kRoomBytes);
  }
  __device__ void take_barriers(gpu::TileMemory& shared) {
    full = shared.take<gpu::Barrier>(2 * gpu::kConsumers);
    empty = full + gpu::kConsumers;
  }
  __device__ void initialize() const {
    for (int group = 0; group < gpu::kConsumers; ++group) {
      gpu::initialize(full[group], gpu::kWarpgroup);
      gpu::initialize(empty[group], gpu::kEpilogueThreads);
    }
  }

  /// By the threads of consumer `group`: hands over the sums of a tile. `place` counts the consumer's
  /// pieces.
  __device__ void put(int group, unsigned& place, const float (&sum)[kColumns / 8][4]) const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece, ++place) {
      gpu::wait(empty[group], place % 2 ^ 1);
      write<kPieceColumns / 8>(rooms + group * kRoomBytes, sum + piece * (kPieceColumns / 8));
      gpu::arrive(full[group]);
    }
  }

  // ---- The epilogue: all its threads

  __device__ void wait(int group, unsigned place) const {
    gpu::wait(full[group], place % 2);
  }
  __device__ void release(int group) const {
    gpu::arrive(empty[group]);
  }
  __device__ void* room(int group) const {
    return rooms + group * kRoomBytes;
  }
  __device__ const void* chunk(int group, int row, int chunk) const {
    return rooms + group * kRoomBytes + row * kRowBytes + (chunk ^ swizzle(row)) * kChunk;
  }

 private:
  /// A different one for each of eight rows, and even ones for rows 0 to 3: neighbouring chunks of these
  /// four rows are in different banks, too.
  __device__ static int swizzle(int row) {
    return row % 4 * 2 + row / 4 % 2;
  }

  /// Writes a lane's sums of kCount fragments of eight columns.
  template <int kCount>
  __device__ static void write(unsigned char* room, const float (*sum)[4]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    unsigned char* const rows = room + gpu::ConsumerRows::of_warp() * kRowBytes;
    if constexpr (sizeof(S) == 2) {
      // Two fragments, with two matrices of eight rows each.
      unsigned char* const to = rows + lane % 16 * kRowBytes;
      const int first = lane / 16 ^ swizzle(lane);
#pragma unroll
      for (int n = 0; n < kCount; n += 2) {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&fragment)[4] = sum[n + i / 2];
          words[i] = gpu::pack<S>(fragment[i % 2 * 2], fragment[i % 2 * 2 + 1]);
        }
        gpu::store_matrices(to + (n ^ first) * kChunk, words);
      }
    } else {
      unsigned char* const to = rows + lane / 4 * kRowBytes + lane % 2 * 8;
      const int first = lane % 4 / 2 ^ swizzle(lane / 4);
#pragma unroll
      for (int n = 0; n < kCount; ++n) {
        unsigned char* const chunk = to + (2 * n ^ first) * kChunk;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          *reinterpret_cast<float2*>(chunk + 8 * half * kRowBytes) =
              float2{sum[n][2 * half], sum[n][2 * half + 1]};
        }
      }
    }
  }
};

}  // namespace tessera::cuda::groups
