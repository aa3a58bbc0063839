// Copies of tiles by the copy engine (cp.async.bulk.tensor), and the barriers that count them.
//
// A copy begins by filling its destination with NaNs. It is made when a thread waits for the barrier
// that counts its bytes, so a missing wait shows. Source: PTX ISA, "mbarrier" and "Tensor copy".
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>

#include "runtime/emulation/device/accesses.h"

namespace tessera::emulation {

/// A tensor [batch, heads, tokens, channels] of 16-bit elements, and its tiles: 64 channels of `rows`
/// tokens. Inside a CUtensorMap.
struct TileMap {
  static constexpr int kChannels = 64;
  static constexpr int kRowBytes = 128;
  const unsigned char* data;
  std::int64_t extents[4];  // channels, tokens, heads, batch
  std::int64_t strides[3];  // of a token, a head and a batch element, in bytes
  int rows;

  int bytes() const { return rows * kRowBytes; }
};

/// A copy that has been started, to one block: of a tile, or of plain bytes.
struct TileCopy {
  unsigned char* shared;
  TileMap map;            // plain bytes: no rows
  std::int64_t place[4];  // as the extents
  int plain_bytes = 0;

  int bytes() const { return map.rows > 0 ? map.bytes() : plain_bytes; }

  /// The 16 bytes of chunk `chunk` of row `row`, or null outside the tensor.
  const unsigned char* source(int row, int chunk) const {
    const std::int64_t at[4] = {place[0] + chunk * 8, place[1] + row, place[2], place[3]};
    for (int i = 0; i < 4; ++i) {
      if (at[i] < 0 || at[i] >= map.extents[i]) return nullptr;
    }
    return map.data + 2 * at[0] + map.strides[0] * at[1] + map.strides[1] * at[2] +
           map.strides[2] * at[3];
  }
};

using Site = std::source_location;

void initialize_barrier(void* barrier, int count, const Site& site);
void publish_barriers();
/// `bytes` more bytes are expected in the phase.
void arrive_at_barrier(void* barrier, int bytes, const Site& site);
/// Waits for the end of the phase with this parity. Returns false if the caller must make `copy`
/// first, and then call again.
bool wait_for_barrier(void* barrier, unsigned parity, TileCopy& copy, const Site& site);
/// Raises Failure if the copy breaks a rule.
void check_tile_copy(const TileCopy& copy, void* barrier, const Site& site);
/// Counts a copy once, however many blocks get it. Zeros in place of elements outside the tensor are not
/// read.
void count_bulk_copy(const TileCopy& copy);
/// Hands the copy over to the barrier's waiters, with the caller's writes so far.
void queue_tile_copy(const TileCopy& copy, void* barrier, const Site& site);
/// The running thread has written these bytes of shared memory for the copy engine or wgmma.
void note_write_for_engines(const void* data, std::size_t bytes);
/// Such writes of the running thread become visible to the engines. Other threads' writes do not.
void fence_shared_for_engines();
/// So do all writes to these bytes.
void show_to_engines(const void* data, std::size_t bytes);

// The accesses are compiled with the kernel, so sanitizers see them.

inline void start_copy(const TileCopy& copy, void* barrier, const Site& site) {
  check_tile_copy(copy, barrier, site);
  const auto bytes = static_cast<std::size_t>(copy.bytes());
  const Unnoted unnoted;
  std::memset(copy.shared, 0xff, bytes);
  show_to_engines(copy.shared, bytes);
  queue_tile_copy(copy, barrier, site);
}
inline void copy_tile(void* shared, const TileMap& map, const std::int64_t (&place)[4],
                      void* barrier, const Site& site) {
  TileCopy copy{static_cast<unsigned char*>(shared), map, {}};
  std::memcpy(copy.place, place, sizeof place);
  start_copy(copy, barrier, site);
  count_bulk_copy(copy);
}
inline void copy_bytes(void* shared, const void* global, int bytes, void* barrier,
                       const Site& site) {
  TileCopy copy{static_cast<unsigned char*>(shared), {}, {}, bytes};
  copy.map.data = static_cast<const unsigned char*>(global);
  start_copy(copy, barrier, site);
  count_bulk_copy(copy);
}

inline void make_copy(const TileCopy& copy) {
  const Unnoted unnoted;
  const auto bytes = static_cast<std::size_t>(copy.bytes());
  if (copy.map.rows == 0) std::memcpy(copy.shared, copy.map.data, bytes);
  for (int row = 0; row < copy.map.rows; ++row) {
    for (int chunk = 0; chunk < TileMap::kRowBytes / 16; ++chunk) {
      unsigned char* const to = copy.shared + row * TileMap::kRowBytes + (chunk ^ (row & 7)) * 16;
      const unsigned char* const from = copy.source(row, chunk);
      from != nullptr ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
    }
  }
  show_to_engines(copy.shared, bytes);
}

inline void wait_for_barrier(void* barrier, unsigned parity, const Site& site) {
  TileCopy copy;
  while (!wait_for_barrier(barrier, parity, copy, site)) make_copy(copy);
}

}  // namespace tessera::emulation
