// The running blocks' barriers: those in shared memory (mbarrier), and the named ones (bar.sync).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include "runtime/emulation/device/architecture.h"
#include "runtime/emulation/device/tile_copy.h"

namespace tessera::emulation {

/// Threads that wait for a condition, a bit for each lane of each warp. They check it again whenever
/// they are woken.
struct Waiters {
  std::array<unsigned, kMostClusterWarps> lanes{};
};

struct SharedBarrier {
  unsigned rank = 0;       // of its block in the cluster
  int number = 0;          // of the block's, by initialization
  int count = 0;           // of arrivals in a phase
  int missing = 0;         // arrivals in the current phase
  unsigned phase = 0;      // its number
  long long expected = 0;  // bytes in the current phase
  bool visible = false;    // to the copy engine
  /// The last phase in which another block of the cluster arrived or copied, until a thread of the block
  /// has waited for it, or for the cluster's barrier.
  std::optional<unsigned> unseen;
  std::deque<TileCopy> copies;
  Waiters waiters;
  char order[8] = {};  // the point at which arrivals publish

  long long queued() const;
  int current_phase() const { return static_cast<int>(phase); }
};

/// Barrier number i of the multiprocessor.
struct NamedBarrier {
  int threads = 0, arrived = 0;
  Waiters waiters;
  std::array<char, 16> orders{};
  unsigned turn = 0;
};

/// All barriers of the running blocks.
struct SharedBarriers {
  std::map<const void*, SharedBarrier> by_address;
  std::map<std::pair<unsigned, int>, NamedBarrier> named;  // by the block's rank and the number

  void clear();
  /// All threads of the cluster are at its barrier, and see the operations so far.
  void synchronize();
  /// The rule that is broken at the end of block `rank`, before others of the cluster; empty if none is.
  std::string end_of_block(unsigned rank) const;
  /// The rule that is broken at the end of all blocks; empty if none is.
  std::string left_over() const;
  /// What the barriers with waiters miss, for a message.
  std::string missing() const;
};

void named_barrier(int number, int threads, bool waits, const std::source_location& site);

}  // namespace tessera::emulation
