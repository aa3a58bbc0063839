#include "runtime/emulation/device/block.h"

#include <bit>
#include <cstring>
#include <utility>

#include "runtime/emulation/device/coordinates.h"
#include "runtime/emulation/device/sanitizers.h"

namespace tessera::emulation {

Block block;

// ---- The order of threads ---------------------------------------------------------------------

namespace {

constexpr unsigned kFullWarp = ~0u;

unsigned lowest(std::uint64_t bits) {
  return static_cast<unsigned>(std::countr_zero(bits));
}
unsigned highest(std::uint64_t bits) {
  return 63u - static_cast<unsigned>(std::countl_zero(bits));
}
/// The next set bit above (below) `position`, going around at the end.
unsigned following(std::uint64_t bits, unsigned position) {
  const std::uint64_t above = bits & ~((std::uint64_t{2} << position) - 1u);
  return lowest(above != 0 ? above : bits);
}
unsigned preceding(std::uint64_t bits, unsigned position) {
  const std::uint64_t below = bits & ((std::uint64_t{1} << position) - 1u);
  return highest(below != 0 ? below : bits);
}

}  // namespace

unsigned Block::draw(unsigned bound) {
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
  return static_cast<unsigned>((random_ >> 32) * bound >> 32);
}

void Block::make_ready(unsigned warp, unsigned lanes) {
  if (lanes == 0) return;
  warps_[warp].ready |= lanes;
  ready_warps_ |= std::uint64_t{1} << warp;
}

// The schedule's choice among the threads that can run; null if there are none.
Thread* Block::next() {
  if (ready_warps_ == 0 && end_of_launch_ahead_) {
    std::exchange(end_of_launch_ahead_, nullptr)();
    wake(end_waiters_);
  }
  if (ready_warps_ == 0) return nullptr;
  const bool here = (ready_warps_ >> warp_ & 1u) != 0;
  switch (schedule_.threads) {
    case Order::forward:
      if (!here) warp_ = following(ready_warps_, warp_), lane_ = 31;
      lane_ = following(warps_[warp_].ready, lane_);
      break;
    case Order::reverse:
      if (!here) warp_ = preceding(ready_warps_, warp_), lane_ = 0;
      lane_ = preceding(warps_[warp_].ready, lane_);
      break;
    case Order::shuffled:
      if (!here || draw(4) == 0) warp_ = following(ready_warps_, draw(32 * cluster()) % 64);
      lane_ = following(warps_[warp_].ready, draw(32));
      break;
  }
  return &take();
}

// The thread at warp_ and lane_, which can run.
Thread& Block::take() {
  Warp& warp = warps_[warp_];
  warp.ready &= ~(1u << lane_);
  if (warp.ready == 0) ready_warps_ &= ~(std::uint64_t{1} << warp_);
  return threads_[warp_ * kWarpSize + lane_];
}

// ---- Fibers -----------------------------------------------------------------------------------

void Block::enter(Thread& thread) {
  running_ = &thread;
  threadIdx = thread.index;
  blockIdx = blocks_[thread.rank].index;
  if (thread.fiber == nullptr) thread.fiber = &fibers_.take();
}

// Every fiber runs threads, one after another.
void Block::fiber_main() {
  Fiber::begin();
  for (;;) {
    block.run_thread();
    Fiber* fiber = block.running_->fiber;
    Thread* next = block.failure_.empty() ? block.next() : nullptr;
    if (next != nullptr && next->fiber == nullptr && !kRacesAreWatched) {
      next->fiber = fiber;
      block.enter(*next);
      continue;
    }
    if (next != nullptr) {
      block.enter(*next);
      ++block.statistics.switches;
    } else if (block.failure_.empty() && block.unfinished_ > 0) {
      block.set_failure(block.divergence());
    }
    block.fibers_.put(*fiber);
    Fiber::change(*fiber, next != nullptr ? *next->fiber : block.host_);
  }
}

void Block::set_failure(const std::string& failure) {
  const Unobserved unobserved;
  failure_ = failure;
}

void Block::run_thread() {
  acquire(&start_);
  try {
    body_(arguments_);
    end_thread();
  } catch (const Failure& failure) {
    set_failure(failure.what());
  }
  publish(&end_);
  running_->done = true;
}

void Block::end_thread() {
  if (early_ && !running_->has_waited) {
    fail("the thread ends without a wait for the launch ahead, and its launch is early");
  }
  if (!running_->copies.empty()) fail("the thread ends with asynchronous copies in flight");
  if (running_->at_cluster_barrier) {
    fail("the thread ends after barrier.cluster.arrive without a wait");
  }
  --unfinished_;
  end_cluster_barrier_if_complete();
  if (--own_block().unfinished > 0) return;
  merge_accesses();
  if (const std::string rule = barriers_.end_of_block(rank()); !rule.empty()) fail(rule);
}

// The running thread waits until it is made ready.
void Block::suspend(const char* waits_in, unsigned mask, const Site& site) {
  Thread& self = *running_;
  self.waits_in = waits_in;
  self.mask = mask;
  self.site = site;
  Thread* other = next();
  if (other == nullptr) throw Failure(divergence());
  change_to(*other);
}

void Block::change_to(Thread& other) {
  if (&other == running_) return;  // its own step has ended the launch ahead
  Fiber& own = *running_->fiber;
  enter(other);
  ++statistics.switches;
  Fiber::change(own, *other.fiber);
}

void Block::wait_in(Waiters& waiters, const char* kind, const Site& site) {
  waiters.lanes[running_->number / kWarpSize] |= 1u << lane();
  suspend(kind, 0, site);
}

void Block::wait_for_launch_ahead(const Site& site) {
  running_->has_waited = true;
  if (end_of_launch_ahead_) wait_in(end_waiters_, "wait_for_launch_ahead", site);
}

void Block::wake(Waiters& waiters) {
  for (unsigned warp = 0; warp < warps_.size(); ++warp) {
    make_ready(warp, std::exchange(waiters.lanes[warp], 0u));
  }
}

void Block::give_way(Waiters& waiters) {
  const Waiters woken = waiters;
  wake(waiters);
  if (schedule_.threads != Order::shuffled) return;
  for (unsigned warp = 0; warp < warps_.size(); ++warp) {
    if (woken.lanes[warp] == 0) continue;
    make_ready(running_->number / kWarpSize, 1u << lane());
    warp_ = warp;
    lane_ = lowest(woken.lanes[warp]);
    return change_to(take());
  }
}

int Block::registers_in_use() const {
  int total = 0;
  for (unsigned warp = 0; warp < block_warps_; ++warp) {
    total += static_cast<int>(kWarpSize) * warps_[first_warp() + warp].registers;
  }
  return total;
}

unsigned Block::favoured_lane() {
  if (schedule_.threads == Order::shuffled) return draw(kWarpSize);
  return schedule_.threads == Order::forward ? 0 : kWarpSize - 1;
}

// The rule that a block broke which has run to its end; empty if none.
std::string Block::left_over() const {
  for (std::size_t warp = 0; warp < warps_.size(); ++warp) {
    if (!warps_[warp].products.empty()) return "the block ends with wgmma in flight";
    if (warps_[warp].products.sequence() != warps_[warp / 4 * 4].products.sequence()) {
      return "the warps of a warpgroup issued different wgmma";
    }
    if (warps_[warp].registers != warps_[warp / 4 * 4].registers) {
      return "the warps of a warpgroup have different registers: setmaxnreg is for all four";
    }
  }
  return barriers_.left_over();
}

// After a failure the other threads are dropped where they wait. Their frames own no resources.
void Block::abandon_fibers() {
  for (const Thread& thread : threads_) {
    if (thread.fiber != nullptr && !thread.done) thread.fiber->publish_for(&end_);
  }
  fibers_.clear();
}

// ---- A block's life ---------------------------------------------------------------------------

void Block::begin_grid(const Launch& launch, std::function<void()> end_of_launch_ahead) {
  const dim3 threads = launch.block;
  gridDim = launch.grid;
  blockDim = threads;
  block_threads_ = threads.x * threads.y * threads.z;
  block_warps_ = (block_threads_ + kWarpSize - 1) / kWarpSize;
  blocks_.resize(launch.cluster);
  threads_.resize(std::size_t{launch.cluster} * block_threads_);
  warps_.resize(std::size_t{launch.cluster} * block_warps_);
  for (unsigned number = 0; number < threads_.size(); ++number) {
    const unsigned of_block = number % block_threads_;
    threads_[number].number = number;
    threads_[number].rank = number / block_threads_;
    threads_[number].index = {of_block % threads.x, of_block / threads.x % threads.y,
                              of_block / (threads.x * threads.y)};
  }
  shared_.begin_grid(launch);
  schedule_ = launch.schedule;
  random_ = schedule_.seed;
  early_ = end_of_launch_ahead != nullptr;
  end_of_launch_ahead_ = std::move(end_of_launch_ahead);
  end_waiters_ = {};
  host_.adopt();
  publish(&start_);
}

void Block::end_grid() {
  acquire(&end_);
  accesses_.end_launch(statistics);
}

// All lanes of every warp of the running thread's block are at one place.
void Block::merge_accesses() {
  if (!accesses_are_counted) return;
  for (unsigned warp = 0; warp < block_warps_; ++warp) {
    accesses_.merge(first_warp() + warp, statistics);
  }
}

void Block::add_event(EventKind kind, int number, int phase, int amount) {
  const unsigned index = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  events_.add({kind, index, running_->number / kWarpSize - first_warp(), number, phase, amount});
}

void Block::run(uint3 first, void (*body)(const void*), const void* arguments) {
  for (ClusterBlock& of_cluster : blocks_) {
    of_cluster.index = first;
    of_cluster.unfinished = block_threads_;
    of_cluster.barrier.arrived = 0;
    ++first.x;
  }
  body_ = body;
  arguments_ = arguments;
  failure_.clear();
  shared_.begin_block();
  events_.begin_block();
  fibers_.begin_block(static_cast<unsigned>(threads_.size()));
  cluster_barrier_.arrived = cluster_barrier_.turn = 0;
  cluster_barrier_.waiters = {};
  barriers_.clear();
  register_waiters_ = {};
  first_registers_ =
      std::min(kRegisterFile / static_cast<int>(kWarpSize * block_warps_) / 8 * 8, 248);
  ready_warps_ = 0;
  unfinished_ = static_cast<unsigned>(threads_.size());
  for (unsigned warp = 0; warp < warps_.size(); ++warp) {
    const unsigned lanes = std::min(kWarpSize, block_threads_ - warp % block_warps_ * kWarpSize);
    warps_[warp].ready = warps_[warp].at_barrier = warps_[warp].waiting = 0;
    warps_[warp].products.clear();
    warps_[warp].registers = first_registers_;
    make_ready(warp, lanes == kWarpSize ? ~0u : (1u << lanes) - 1u);
  }
  for (Thread& thread : threads_) {
    thread.fiber = nullptr;
    thread.done = thread.has_waited = false;
    thread.copies.clear();
    thread.has_fenced = thread.at_cluster_barrier = false;
    thread.atomics.clear();
  }
  const bool up = schedule_.threads != Order::reverse;  // next() starts from here
  warp_ = up ? 0 : static_cast<unsigned>(warps_.size()) - 1;
  lane_ = up ? kWarpSize - 1 : 0;
  Thread& beginning = *next();
  enter(beginning);
  Fiber::change(host_, *beginning.fiber);
  if (failure_.empty()) set_failure(left_over());
  if (!failure_.empty()) accesses_.clear();
  shared_.end_block();
  statistics.blocks += cluster();
  if (!failure_.empty()) {
    abandon_fibers();
    throw Failure(failure_);
  }
}

// ---- Waiting for each other -------------------------------------------------------------------

namespace {

bool same(const Site& a, const Site& b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}
bool same(const char* a, const char* b) {
  return a == b || std::strcmp(a, b) == 0;
}

}  // namespace

int Block::synchronize(const char* kind, bool predicate, const Site& site) {
  Barrier& barrier = own_block().barrier;
  char* order = &barrier.orders[barrier.turn % 2 * 8];
  publish(order);
  if (barrier.arrived == 0) {
    barrier.kind = kind;
    barrier.site = site;
    barrier.votes = 0;
  } else if (!same(barrier.site, site) || !same(barrier.kind, kind)) {
    fail(std::string(kind) + " here while other threads wait in " + barrier.kind + " at " +
             place(barrier.site),
         site);
  }
  barrier.votes += predicate ? 1 : 0;
  if (++barrier.arrived < block_threads_) {
    warps_[running_->number / kWarpSize].at_barrier |= 1u << lane();
    suspend(kind, 0, site);
  } else {
    ++statistics.barriers;
    merge_accesses();
    ++barrier.turn;
    barrier.result = barrier.votes;
    barrier.arrived = 0;
    for (unsigned warp = first_warp(); warp < first_warp() + block_warps_; ++warp) {
      make_ready(warp, warps_[warp].at_barrier);
      warps_[warp].at_barrier = 0;
    }
  }
  // The next barrier cannot be complete before this thread reaches it.
  const int result = barrier.result;
  acquire(order);
  return result;
}

void Block::collective(unsigned mask, const char* kind, void* operands, Execute execute,
                       bool orders_memory, const Site& site) {
  Thread& self = *running_;
  Warp& warp = warps_[self.number / kWarpSize];
  const unsigned own = 1u << lane();
  unsigned entry = 0;
  while (entry < warp.waiting && warp.collectives[entry].mask != mask) ++entry;
  Collective& collective = warp.collectives[entry];
  if (entry == warp.waiting) {
    check_mask(mask, site);
    ++warp.waiting;
    collective = {mask, 0, kind, site, &warp.orders[warp.turn++ % kWarpSize * 8]};
  } else if (!same(collective.site, site) || !same(collective.kind, kind)) {
    fail(std::string(kind) + " while other lanes of the mask wait in " + collective.kind + " at " +
             place(collective.site),
         site);
  }
  if ((mask & own) == 0) fail(std::string(kind) + ": the lane itself is not in the mask", site);
  char* order = collective.order;
  if (orders_memory) publish(order);
  self.operands = operands;
  collective.arrived |= own;
  if (collective.arrived == mask) {
    complete(collective, execute);
    if (accesses_are_counted && mask == kFullWarp) {
      accesses_.merge(self.number / kWarpSize, statistics);
    }
    make_ready(self.number / kWarpSize, mask & ~own);
  } else {
    suspend(kind, mask, site);
  }
  if (orders_memory) acquire(order);
}

void Block::check_mask(unsigned mask, const Site& site) const {
  const unsigned first = running_->number - running_->number % kWarpSize;
  const auto count = static_cast<unsigned>(threads_.size()) - first;
  if (count < kWarpSize && mask >> count != 0) {
    fail("the mask names lanes beyond the block's last thread", site);
  }
}

void Block::complete(Collective& collective, Execute execute) {
  ++statistics.collectives;
  Warp& warp = warps_[running_->number / kWarpSize];
  const Thread* first = running_ - lane();
  void* lanes[kWarpSize];
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    lanes[lane] = (collective.mask >> lane & 1u) != 0 ? first[lane].operands : nullptr;
  }
  collective = warp.collectives[--warp.waiting];
  execute(lanes);
}

}  // namespace tessera::emulation
