// The emulator's interface to tests: the order of threads, and counters.
//
// Kernels do not include this. docs/emulation.md explains the emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::emulation {

/// Raised when a kernel breaks a rule. The message names the place and the rule.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// forward and reverse run one warp as far as it can go before the next, so warps are as far apart
/// as they can be. shuffled draws the next warp and lane at every switch.
enum class Order : std::uint8_t { forward, reverse, shuffled };

/// Reads "forward", "reverse" or "shuffled"; no value for other names.
std::optional<Order> parse_order(std::string_view name);

/// The order of the threads of a block and of the blocks of a grid.
struct Schedule {
  Order threads = Order::forward;
  Order blocks = Order::forward;
  std::uint64_t seed = 1;  // for shuffled orders
};

/// Sets the schedule of later launches in the whole process. A queued kernel keeps the schedule of
/// its launch.
void set_schedule(Schedule schedule);
Schedule schedule();

/// Counted over all launches since the last reset.
struct Statistics {
  std::uint64_t blocks = 0;
  std::uint64_t barriers = 0;        // of a whole block
  std::uint64_t collectives = 0;     // shuffles, votes, matrix instructions: once per warp
  std::uint64_t switches = 0;        // from one thread's stack to another's
  std::uint64_t matrix_loads = 0;    // of 8x8 elements, by ldmatrix
  std::uint64_t tile_copies = 0;     // by the copy engine
  std::uint64_t bank_conflicts = 0;  // extra turns of matrix loads to read shared memory
};
Statistics statistics();
void reset_statistics();

/// Launches of one kernel with the same block and the same shared memory.
struct KernelUse {
  std::string kernel;                               // its name
  unsigned threads = 0;                             // of a block
  std::size_t static_bytes = 0, dynamic_bytes = 0;  // of shared memory
  std::uint64_t launches = 0;
};
/// All launches of the process so far.
std::vector<KernelUse> kernel_uses();

}  // namespace tessera::emulation
