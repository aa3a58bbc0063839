// The running block: its threads, their order, and the places where they wait for each other.
//
// The blocks of a cluster run together, as one block with the warps of all. The warps of block `rank`
// follow those of the blocks before it.
//
// A CUDA thread runs until it must wait for others. Then it switches directly to the next thread
// that can run; there is no separate scheduler. A thread that never waits costs one function call:
// it runs on the stack of the thread before it. A thread that waits keeps its stack, a fiber, until
// it ends.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include <vector_types.h>

#include "runtime/emulation/device/accesses.h"
#include "runtime/emulation/device/asynchronous_copy.h"
#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/device/events.h"
#include "runtime/emulation/device/fiber_pool.h"
#include "runtime/emulation/device/shared_barriers.h"
#include "runtime/emulation/device/shared_memory.h"
#include "runtime/emulation/device/warpgroup.h"

namespace tessera::emulation {

inline constexpr unsigned kWarpSize = 32;
inline constexpr unsigned kWarpgroup = 4 * kWarpSize;
inline constexpr int kRegisterFile = 64 * 1024;

using Site = std::source_location;  // a place in the kernel

/// One of the threads.
struct Thread {
  unsigned number = 0;  // x fastest; its lane is number % 32
  unsigned rank = 0;    // of its block in the cluster
  uint3 index{};
  Fiber* fiber = nullptr;  // its stack, from its first step on
  bool done = false;
  bool has_waited = false;  // for the launch ahead
  PendingCopies copies;
  // Under the thread sanitizer.
  bool has_fenced = false;          // its atomic operations publish its accesses
  std::vector<void*> atomics{};     // variables used since its last fence
  bool at_cluster_barrier = false;  // it has arrived, and not waited
  unsigned cluster_turn = 0;        // the barrier's at its arrival
  // While it waits.
  const char* waits_in = nullptr;
  Site site;
  unsigned mask = 0;         // in a warp's collective
  void* operands = nullptr;  // in a warp's collective; on the thread's stack
};

/// An operation of the lanes of a mask. At most one per lane is incomplete.
struct Collective {
  unsigned mask = 0, arrived = 0;
  const char* kind = nullptr;
  Site site;
  char* order = nullptr;  // the point at which lanes publish to each other
};

struct Warp {
  unsigned ready = 0;                             // bit i: lane i can run, and does not
  unsigned at_barrier = 0;                        // bit i: lane i waits in __syncthreads
  std::array<Collective, kWarpSize> collectives;  // the first `waiting`
  unsigned waiting = 0;
  unsigned turn = 0;                         // counts collectives
  std::array<char, 8 * kWarpSize> orders{};  // points of order, taken in turn
  WarpProducts products;
  int registers = 0;  // of a thread
};

struct Barrier {
  unsigned arrived = 0;
  const char* kind = nullptr;
  Site site;
  int votes = 0, result = 0;
  unsigned turn = 0;
  std::array<char, 16> orders{};
};

/// A block of the cluster.
struct ClusterBlock {
  uint3 index{};
  unsigned unfinished = 0;  // threads
  Barrier barrier;
};

/// The barrier of all threads of the cluster (barrier.cluster).
struct ClusterBarrier {
  unsigned arrived = 0;
  unsigned turn = 0;  // completions
  Waiters waiters;
  std::array<char, 16> orders{};
};

class Block {
 public:
  // ---- For the grid ----

  /// Runs the cluster whose first block is at `first`: each thread calls body(arguments). Raises Failure.
  void run(uint3 first, void (*body)(const void*), const void* arguments);
  /// Before the blocks of a grid run, and after. The launch is early if there is an end of the one ahead (early.h).
  void begin_grid(const Launch& launch, std::function<void()> end_of_launch_ahead);
  void end_grid();
  /// A pseudo-random number below `bound` (at most 2^32), from the schedule's seed.
  unsigned draw(unsigned bound);

  Statistics statistics{};

  // ---- For the kernel ----

  Thread& thread() { return *running_; }
  /// The running thread's block in the cluster, and the cluster's blocks.
  unsigned rank() const { return running_->rank; }
  unsigned cluster() const { return static_cast<unsigned>(blocks_.size()); }
  bool has_ended(unsigned rank) const { return blocks_[rank].unfinished == 0; }
  unsigned lane() const { return running_->number % kWarpSize; }
  SharedMemory& shared() { return shared_; }
  AccessLog& accesses() { return accesses_; }
  EventLog& events() { return events_; }
  /// An event of the running thread's warp, for the list of events if there is one.
  void record(EventKind kind, int number, int phase = 0, int amount = 0) {
    if (events_.is_on()) add_event(kind, number, phase, amount);
  }

  /// Waits until every thread of the block is here. Returns the number of true predicates.
  int synchronize(const char* kind, bool predicate, const Site& site);

  /// Waits until every lane of `mask` is here with its operands. The last lane calls `execute` for
  /// all. lanes[i] holds lane i's operands, or null if lane i is not in the mask.
  using Execute = void (*)(void* const* lanes);
  void collective(unsigned mask, const char* kind, void* operands, Execute execute,
                  bool orders_memory, const Site& site);

  /// The barrier of the cluster, in two steps. Threads that have ended are not waited for.
  void arrive_at_cluster(const Site& site);
  void wait_for_cluster(const Site& site);
  /// Whether all threads of the cluster have been at its barrier.
  bool has_synchronized() const { return cluster_barrier_.turn > 0; }

  void wait_for_launch_ahead(const Site& site);

  /// Suspends the running thread until it is woken. It may be woken too early.
  void wait_in(Waiters& waiters, const char* kind, const Site& site);
  void wake(Waiters& waiters);
  /// Wakes them. Under a shuffled schedule one of them runs before the running thread goes on.
  void give_way(Waiters& waiters);

  SharedBarriers& barriers() { return barriers_; }
  unsigned warps() const { return static_cast<unsigned>(warps_.size()); }
  WarpProducts& products(unsigned warp) { return warps_[warp].products; }
  /// A thread's registers. At first as many as __launch_bounds__(threads, 1) gives.
  int& registers(unsigned warp) { return warps_[warp].registers; }
  /// In the running thread's block.
  int registers_in_use() const;
  /// Those that the block was started with. setmaxnreg only moves them.
  int registers_at_start() const {
    return static_cast<int>(kWarpSize * block_warps_) * first_registers_;
  }
  Waiters& register_waiters() { return register_waiters_; }
  /// The lane that the schedule prefers.
  unsigned favoured_lane();

  /// Raises Failure "block (0,0,0) thread (5,0,0) at kernel.cu:12: RULE".
  [[noreturn]] void fail(const std::string& rule, const Site& site) const;
  [[noreturn]] void fail(const std::string& rule) const;

 private:
  static void fiber_main();
  void run_thread();
  Thread* next();
  Thread& take();
  void make_ready(unsigned warp, unsigned lanes);
  void enter(Thread& thread);
  void suspend(const char* waits_in, unsigned mask, const Site& site);
  void change_to(Thread& other);
  void check_mask(unsigned mask, const Site& site) const;
  void complete(Collective& collective, Execute execute);
  void merge_accesses();
  void end_thread();
  void end_cluster_barrier_if_complete();
  ClusterBlock& own_block() { return blocks_[running_->rank]; }
  unsigned first_warp() const { return running_->rank * block_warps_; }
  void add_event(EventKind kind, int number, int phase, int amount);
  void abandon_fibers();
  void set_failure(const std::string& failure);
  std::string divergence() const;
  std::string left_over() const;

  std::vector<ClusterBlock> blocks_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  unsigned block_threads_ = 0, block_warps_ = 0;  // of one block
  std::uint64_t ready_warps_ = 0;                 // bit i: warp i has lanes that can run
  unsigned warp_ = 0, lane_ = 0;                  // of the running thread
  Thread* running_ = nullptr;
  unsigned unfinished_ = 0;
  ClusterBarrier cluster_barrier_;
  SharedMemory shared_;
  AccessLog accesses_;
  EventLog events_;
  SharedBarriers barriers_;
  Waiters register_waiters_;
  bool early_ = false;
  std::function<void()> end_of_launch_ahead_;  // null once it was called
  Waiters end_waiters_;
  int first_registers_ = 0;
  Schedule schedule_;
  std::uint64_t random_ = 0;
  void (*body_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  std::string failure_;  // empty: none
  Fiber host_;
  FiberPool fibers_{&Block::fiber_main};
  char start_ = 0, end_ = 0;  // points of order
};

/// The running block: one at a time in the process (launch.cpp).
extern Block block;

/// "kernel.cu:12".
std::string place(const Site& site);

}  // namespace tessera::emulation
