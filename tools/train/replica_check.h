// Replica check: ranks that hold the same numbers compare checksums of them.
//
// Under ddp, and across the replicas of hsdp, ranks receive the same reduced gradients and hold the same
// masters. A flipped bit in one rank's memory makes them drift apart without a sign. So every few steps
// the ranks compare eight bytes for each group of the plan (sharding.check_replicas). CRC-32C finds
// every single flipped bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sharding/strategy/strategy.h"

namespace tessera {

/// CRC-32C of a rank's parts of a group's parameters.
struct Checksums {
  std::uint32_t gradients = 0;
  std::uint32_t masters = 0;
};

/// The verdict about ranks that should have equal checksums: empty if they have. Otherwise names the
/// ranks that differ from more than half of all, or all of them if no majority agrees.
std::string describe_difference(const std::vector<int>& ranks,
                                const std::vector<Checksums>& checksums);

/// Call it after the last micro-batch of a step and before the update. A collective that waits for the
/// gradients. Raises the same Error on every rank if replicas differ.
void check_replicas(const Strategy& strategy, Communicator& world, std::int64_t step);

}  // namespace tessera
