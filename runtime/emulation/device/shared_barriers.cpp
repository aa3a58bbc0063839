#include "runtime/emulation/device/shared_barriers.h"

#include <algorithm>

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/sanitizers.h"
#include "runtime/emulation/device/warpgroup.h"

namespace tessera::emulation {
namespace {

SharedBarrier& find(void* barrier, const Site& site) {
  auto& all = block.barriers().by_address;
  const auto found = all.find(barrier);
  if (found == all.end()) block.fail("a barrier that was not initialized", site);
  return found->second;
}

/// The barrier of the running thread's block.
NamedBarrier& find_named(int number) {
  const Unobserved unobserved;
  return block.barriers().named[{block.rank(), number}];
}

/// An event of the phase at hand, for a barrier of the running thread's block.
void record(EventKind kind, const SharedBarrier& barrier, int amount = 0) {
  if (barrier.rank == block.rank()) {
    block.record(kind, barrier.number, barrier.current_phase(), amount);
  }
}

/// Notes that a thread of another block has arrived, or has started a copy.
void note(SharedBarrier& barrier) {
  if (barrier.rank != block.rank()) barrier.unseen = barrier.phase;
}

/// Has the phase ended?
bool end_phase_if_complete(SharedBarrier& barrier) {
  if (barrier.missing > 0 || barrier.expected > 0 || !barrier.copies.empty()) return false;
  record(EventKind::barrier_completed, barrier);
  ++barrier.phase;
  barrier.missing = barrier.count;
  return true;
}

/// All of the copy is compiled here. Where kernels are compiled to be counted, theirs is slow: it has a
/// call for each access.
[[gnu::flatten]] void make_copy_for_kernel(const TileCopy& copy) {
  make_copy(copy);
}

}  // namespace

long long SharedBarrier::queued() const {
  long long bytes = 0;
  for (const TileCopy& copy : copies) bytes += copy.bytes();
  return bytes;
}

void SharedBarriers::clear() {
  by_address.clear();
  named.clear();
}

void SharedBarriers::synchronize() {
  for (auto& [address, barrier] : by_address) barrier.unseen.reset();
}

std::string SharedBarriers::end_of_block(unsigned rank) const {
  for (const auto& [address, barrier] : by_address) {
    if (barrier.rank != rank || !barrier.unseen) continue;
    return "the block ends after another block's arrival or copy at its barrier in shared memory "
           "that no thread waited for; end both with barrier.cluster";
  }
  return {};
}

std::string SharedBarriers::left_over() const {
  for (const auto& [address, barrier] : by_address) {
    if (!barrier.copies.empty()) return "the block ends with tile copies that no thread waited for";
  }
  for (const auto& [place, barrier] : named) {
    if (barrier.arrived == 0) continue;
    return "the block ends with " + std::to_string(barrier.arrived) + " of " +
           std::to_string(barrier.threads) + " threads at named barrier " +
           std::to_string(place.second);
  }
  return {};
}

std::string SharedBarriers::missing() const {
  std::string text;
  for (const auto& [address, barrier] : by_address) {
    const auto& lanes = barrier.waiters.lanes;
    if (std::all_of(lanes.begin(), lanes.end(), [](unsigned of_warp) { return of_warp == 0; })) {
      continue;
    }
    text += "; a barrier's phase " + std::to_string(barrier.phase) + " misses " +
            std::to_string(barrier.missing) + " arrivals and " +
            std::to_string(barrier.expected - barrier.queued()) + " bytes";
  }
  return text;
}

void initialize_barrier(void* barrier, int count, const Site& site) {
  const Unobserved unobserved;
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0 || !block.shared().contains(barrier, 8)) {
    block.fail("a barrier that is not 8 aligned bytes of shared memory", site);
  }
  if (count < 1 || count >= 1 << 20) block.fail("a barrier for no arrivals, or too many", site);
  auto& all = block.barriers().by_address;
  if (all.count(barrier) != 0) block.fail("a barrier that is initialized a second time", site);
  const auto number = std::count_if(
      all.begin(), all.end(), [](const auto& other) { return other.second.rank == block.rank(); });
  SharedBarrier& created = all[barrier];
  created.rank = block.rank();
  created.number = static_cast<int>(number);
  created.count = created.missing = count;
}

void publish_barriers() {
  for (auto& [address, barrier] : block.barriers().by_address) {
    if (barrier.rank == block.rank()) barrier.visible = true;
  }
}

void arrive_at_barrier(void* address, int bytes, const Site& site) {
  SharedBarrier& barrier = find(address, site);
  publish(barrier.order);
  if (barrier.missing == 0) block.fail("more arrivals at a barrier than its phase has", site);
  record(EventKind::barrier_arrived, barrier, bytes);
  note(barrier);
  barrier.expected += bytes;
  --barrier.missing;
  if (end_phase_if_complete(barrier)) {
    // A producer that waited fills the tile at once under a shuffled schedule. So it shows where the
    // thread was not done with the tile.
    block.give_way(barrier.waiters);
  } else if (barrier.missing == 0) {
    block.wake(barrier.waiters);  // one of them makes the copies
  }
}

bool wait_for_barrier(void* address, unsigned parity, TileCopy& copy, const Site& site) {
  SharedBarrier& barrier = find(address, site);
  if (parity > 1) block.fail("the parity of a phase is 0 or 1", site);
  for (;;) {
    if (barrier.phase % 2 != parity) {
      acquire(barrier.order);
      if (barrier.unseen && *barrier.unseen < barrier.phase) barrier.unseen.reset();
      block.record(EventKind::barrier_waited, barrier.number, barrier.current_phase() - 1);
      return true;
    }
    // All copies of the phase have been started: the first waiter makes them.
    if (barrier.missing == 0 && barrier.queued() > barrier.expected) {
      block.fail("copies of " + std::to_string(barrier.queued()) +
                     " bytes at a barrier that expects " + std::to_string(barrier.expected),
                 site);
    }
    if (barrier.missing == 0 && barrier.queued() == barrier.expected) {
      if (barrier.copies.empty()) {
        publish(barrier.order);  // the copies that this thread made
        end_phase_if_complete(barrier);
        block.wake(barrier.waiters);
        continue;
      }
      acquire(barrier.order);
      const Unobserved unobserved;
      copy = barrier.copies.front();
      barrier.copies.pop_front();
      barrier.expected -= copy.bytes();
      if (kAccessesAreWatched) return false;
      make_copy_for_kernel(copy);
      continue;
    }
    block.wait_in(barrier.waiters, "a wait for a barrier in shared memory", site);
  }
}

void check_tile_copy(const TileCopy& copy, void* address, const Site& site) {
  const SharedBarrier& barrier = find(address, site);
  const auto bytes = static_cast<std::size_t>(copy.bytes());
  if (!barrier.visible) {
    block.fail("a tile copy at a barrier that was not published to the copy engine", site);
  }
  const bool plain = copy.map.rows == 0;
  if (reinterpret_cast<std::uintptr_t>(copy.shared) % (plain ? 16 : 1024) != 0) {
    block.fail(plain ? "a bulk copy to an address that is no multiple of 16 bytes"
                     : "a tile copy to an address that is no multiple of 1024 bytes",
               site);
  }
  if (plain && (reinterpret_cast<std::uintptr_t>(copy.map.data) % 16 != 0 || bytes % 16 != 0)) {
    block.fail("a bulk copy from an address, or of a size, that is no multiple of 16 bytes", site);
  }
  if (!block.shared().contains(copy.shared, bytes)) {
    block.fail("a tile copy to an address outside shared memory", site);
  }
  if (warpgroups_read(copy.shared, bytes)) {
    block.fail("a tile copy to shared memory that a wgmma in flight still reads", site);
  }
}

namespace {

void read_by_engine(const unsigned char* data, std::size_t bytes) {
  block.statistics.bulk_copy_bytes += bytes;
  if (accesses_are_counted) block.accesses().read_by_engine(data, bytes, block.statistics);
}

}  // namespace

void count_bulk_copy(const TileCopy& copy) {
  if (copy.map.rows > 0) ++block.statistics.tile_copies;
  const Unobserved unobserved;
  constexpr int kChunk = 16;
  if (copy.map.rows == 0) read_by_engine(copy.map.data, static_cast<std::size_t>(copy.plain_bytes));
  for (int row = 0; row < copy.map.rows; ++row) {
    int inside = 0;
    while (inside < TileMap::kRowBytes / kChunk && copy.source(row, inside) != nullptr) ++inside;
    if (inside > 0) read_by_engine(copy.source(row, 0), static_cast<std::size_t>(inside * kChunk));
  }
}

void queue_tile_copy(const TileCopy& copy, void* address, const Site& site) {
  SharedBarrier& barrier = find(address, site);
  publish(barrier.order);
  record(EventKind::copy_started, barrier, copy.bytes());
  note(barrier);
  const Unobserved unobserved;
  barrier.copies.push_back(copy);
  block.wake(barrier.waiters);
}

void named_barrier(int number, int threads, bool waits, const Site& site) {
  if (number < 1 || number > 15) block.fail("a named barrier's number is 1 to 15", site);
  if (threads < 32 || threads > 1024 || threads % 32 != 0) {
    block.fail("a named barrier is for a multiple of 32 threads", site);
  }
  NamedBarrier& barrier = find_named(number);
  if (barrier.arrived > 0 && barrier.threads != threads) {
    block.fail("named barrier " + std::to_string(number) + " is for " +
                   std::to_string(barrier.threads) + " threads elsewhere, here for " +
                   std::to_string(threads),
               site);
  }
  barrier.threads = threads;
  char* const order = &barrier.orders[barrier.turn % 2 * 8];
  publish(order);
  const unsigned turn = barrier.turn;
  if (!waits) {
    block.record(EventKind::named_arrived, number, static_cast<int>(turn), threads);
  }
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.turn;
    block.wake(barrier.waiters);
  }
  while (waits && barrier.turn == turn) {
    block.wait_in(barrier.waiters, "bar.sync", site);
  }
  if (!waits) return;
  acquire(order);
  block.record(EventKind::named_synced, number, static_cast<int>(turn), threads);
}

}  // namespace tessera::emulation
