// Clusters: blocks that run together and reach each other's shared memory (sm_90).
//
// A block may use another one's shared memory from the first barrier of the cluster on, until that block
// ends. So a block that is reached last by an operation that none of its threads waits for must end with
// such a barrier. Source: PTX ISA 9.0, "barrier.cluster", "mapa" and ".multicast::cluster".
#pragma once

#include <cstdint>
#include <source_location>

#include "runtime/emulation/device/tile_copy.h"

namespace tessera::emulation {

/// The running block's rank in its cluster, and the cluster's blocks. A launch without clusters has those
/// of one block.
unsigned block_in_cluster();
unsigned blocks_of_cluster();

/// barrier.cluster.arrive, then barrier.cluster.wait.
void arrive_at_cluster(const Site& site);
void wait_for_cluster(const Site& site);

/// The place of `shared`, an address of the running block, in block `rank`. Raises Failure if that block
/// cannot be reached.
void* in_block(void* shared, unsigned rank, const Site& site);

/// Raises Failure if bit i of `blocks` is set, and the cluster has no block i.
void check_blocks(unsigned blocks, const Site& site);

/// Each block i with bit i in `blocks` gets the tile at its `shared`, and the bytes at its `barrier`.
inline void copy_tile(void* shared, const TileMap& map, const std::int64_t (&place)[4],
                      void* barrier, unsigned blocks, const Site& site) {
  check_blocks(blocks, site);
  TileCopy copy{nullptr, map, {}};
  std::memcpy(copy.place, place, sizeof place);
  for (unsigned rank = 0; rank < blocks_of_cluster(); ++rank) {
    if ((blocks >> rank & 1u) == 0) continue;
    copy.shared = static_cast<unsigned char*>(in_block(shared, rank, site));
    start_copy(copy, in_block(barrier, rank, site), site);
  }
  count_bulk_copy(copy);
}

}  // namespace tessera::emulation
