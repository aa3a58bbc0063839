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

/// Accesses to global memory by instructions of warps. A sector is 32 bytes.
struct Traffic {
  std::uint64_t bytes = 0;     // that the lanes ask for
  std::uint64_t sectors = 0;   // that the instructions touch, each once per instruction
  std::uint64_t distinct = 0;  // sectors that a launch touches, each once per launch
};

/// That of `bytes` bytes, each once, from the beginning of a sector on.
constexpr Traffic whole(std::uint64_t bytes) {
  return {bytes, (bytes + 31) / 32, (bytes + 31) / 32};
}

/// Counted over all launches since the last reset.
struct Statistics {
  std::uint64_t blocks = 0;
  std::uint64_t barriers = 0;            // of a whole block
  std::uint64_t collectives = 0;         // shuffles, votes, matrix instructions: once per warp
  std::uint64_t switches = 0;            // from one thread's stack to another's
  std::uint64_t atomics = 0;             // once per thread
  std::uint64_t matrix_loads = 0;        // of 8x8 elements, by ldmatrix
  std::uint64_t matrix_products = 0;     // mma.sync, once per warp
  std::uint64_t warpgroup_products = 0;  // wgmma, once per warpgroup
  std::uint64_t matrix_flops = 0;        // of both
  std::uint64_t async_copy_bytes = 0;    // by cp.async, from global memory
  std::uint64_t tile_copies = 0;         // by the copy engine
  std::uint64_t bulk_copy_bytes = 0;     // by the copy engine: tiles and plain bytes
  std::uint64_t bank_conflicts = 0;      // extra turns to read or write shared memory

  // By kernels with counted accesses only (docs/emulation.md). A read of a sector that the launch
  // has written is not in reads.distinct.
  Traffic reads{}, writes{};
  std::uint64_t shared_accesses = 0;  // instructions of warps
};
Statistics statistics();
void reset_statistics();

/// A counter by its name: "reads.bytes".
struct Counter {
  const char* name;
  std::uint64_t& (*of)(Statistics& statistics);
};
/// All counters of Statistics.
const std::vector<Counter>& counters();

/// One launch: of a kernel, or of a library's product, copy or fill, which the toolkit names.
struct LaunchRecord {
  std::string kernel;                               // its name
  std::string file;                                 // that launches it; empty: a library
  unsigned blocks = 0, threads = 0;                 // threads of a block
  std::size_t static_bytes = 0, dynamic_bytes = 0;  // of shared memory
  Statistics work;
};
/// Lists the launches that run from here on, of the whole process.
void start_launch_list();
/// Ends the list and returns it, in the order in which the launches ran.
std::vector<LaunchRecord> take_launch_list();
bool lists_launches();
/// Adds a launch to the list, if there is one: libraries call this.
void list_launch(LaunchRecord record);

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
