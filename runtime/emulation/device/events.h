// The events of Hopper's pipelines on the emulator, in the order in which they happen.
//
// An event is a warp's: copies are started, barriers take arrivals and complete, products are issued
// and waited for. Lanes do most of this one by one. Then the first lane of the warp counts, so a warp's
// events are in the order of its program. There is no time: only the order in which the schedule ran
// them. Where a wait follows an arrival, the order is the same on a GPU.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace tessera::emulation {

enum class EventKind : std::uint8_t {
  // A barrier in shared memory. `number` counts the block's barriers by their initialization, from 0.
  // `phase` is the barrier's: the one that the event belongs to, -1 for a wait that had none to wait
  // for.
  copy_started,       // amount: bytes
  barrier_arrived,    // amount: bytes that the phase now expects from the copy engine
  barrier_completed,  // by the last arrival or copy. Here the first warp to wait makes the copies
  barrier_waited,     // the wait is over
  // A named barrier. `phase` counts its completions. amount: its threads
  named_arrived,  // without a wait
  named_synced,   // the wait is over
  // wgmma. `number` is the warp's group of products, from 0.
  tiles_multiplied,      // amount: columns. The left operand is in shared memory
  registers_multiplied,  // amount: columns. The left operand is in registers
  products_committed,
  products_waited,  // number: the last complete group; amount: groups still in flight
};

/// An operation on a barrier of another block of the cluster is no event. `block` counts along x first, `warp` within
/// the block.
struct KernelEvent {
  EventKind kind{};
  unsigned block = 0, warp = 0;
  int number = 0, phase = 0, amount = 0;

  friend bool operator==(const KernelEvent&, const KernelEvent&) = default;
};

/// Lists the events of the launches that run from here on, of the whole process.
void start_event_list();
/// Ends the list and returns it. An event's place in it is its sequence number.
std::vector<KernelEvent> take_event_list();

/// The list, while there is one.
class EventLog {
 public:
  bool is_on() const { return is_on_; }
  void start();
  std::vector<KernelEvent> take();
  void begin_block() { seen_.clear(); }
  /// Leaves out an event that another lane of the warp has added.
  void add(const KernelEvent& event);

 private:
  bool is_on_ = false;
  std::vector<KernelEvent> list_;
  /// The lanes' events of the running blocks, by block, warp, kind, number and phase.
  std::set<std::tuple<unsigned, unsigned, EventKind, int, int>> seen_;
};

}  // namespace tessera::emulation
