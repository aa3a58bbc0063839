#include "runtime/emulation/device/cluster.h"

#include <string>

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/sanitizers.h"

namespace tessera::emulation {

void Block::arrive_at_cluster(const Site& site) {
  if (running_->at_cluster_barrier) fail("a second barrier.cluster.arrive before the wait", site);
  running_->at_cluster_barrier = true;
  running_->cluster_turn = cluster_barrier_.turn;
  publish(&cluster_barrier_.orders[cluster_barrier_.turn % 2 * 8]);
  ++cluster_barrier_.arrived;
  end_cluster_barrier_if_complete();
}

void Block::wait_for_cluster(const Site& site) {
  if (!running_->at_cluster_barrier) fail("barrier.cluster.wait without an arrive", site);
  const unsigned turn = running_->cluster_turn;
  while (cluster_barrier_.turn == turn) {
    wait_in(cluster_barrier_.waiters, "barrier.cluster.wait", site);
  }
  running_->at_cluster_barrier = false;
  acquire(&cluster_barrier_.orders[turn % 2 * 8]);
}

void Block::end_cluster_barrier_if_complete() {
  ClusterBarrier& barrier = cluster_barrier_;
  if (barrier.arrived == 0 || barrier.arrived < unfinished_) return;
  barrier.arrived = 0;
  ++barrier.turn;
  barriers_.synchronize();
  wake(barrier.waiters);
}

unsigned block_in_cluster() {
  return block.rank();
}

unsigned blocks_of_cluster() {
  return block.cluster();
}

void arrive_at_cluster(const Site& site) {
  block.arrive_at_cluster(site);
}

void wait_for_cluster(const Site& site) {
  block.wait_for_cluster(site);
}

void* in_block(void* shared, unsigned rank, const Site& site) {
  const auto refuse = [&](const std::string& reason) {
    block.fail("shared memory of block " + std::to_string(rank) + " of the cluster" + reason, site);
  };
  if (rank >= block.cluster()) {
    refuse(", which has " + std::to_string(block.cluster()) + " blocks");
  }
  if (rank == block.rank()) return shared;
  if (!block.has_synchronized()) refuse(" before a barrier.cluster: that block may not have begun");
  if (block.has_ended(rank)) refuse(", which has ended");
  void* const found = block.shared().in_block(shared, rank);
  if (found == nullptr) refuse(", which has no such array");
  return found;
}

void check_blocks(unsigned blocks, const Site& site) {
  if (blocks == 0 || blocks >> block.cluster() != 0) {
    block.fail("a multicast to blocks " + std::to_string(blocks) +
                   " (a bit for each) in a cluster of " + std::to_string(block.cluster()) +
                   " blocks",
               site);
  }
}

}  // namespace tessera::emulation
