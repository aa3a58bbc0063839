// What tests ask of the emulator of CUDA kernels: in which order threads run, what was counted.
// Kernels do not include this; docs/emulation.md says how it works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::emulation {

/// What the emulator raises when a kernel breaks a rule: where, and which rule.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// forward and reverse run one warp as far as it can go before the next, which gives the largest
/// skew between warps; shuffled draws which warp and lane come next at every switch.
enum class Order : std::uint8_t { forward, reverse, shuffled };

/// "forward", "reverse" or "shuffled"; nothing for other names.
std::optional<Order> parse_order(std::string_view name);

/// In which order the threads of a block run, and the blocks of a grid.
struct Schedule {
  Order threads = Order::forward;
  Order blocks = Order::forward;
  std::uint64_t seed = 1;  // of what is shuffled
};

/// The schedule of launches from now on, in the whole process: a kernel keeps the one that it was
/// launched under.
void set_schedule(Schedule schedule);
Schedule schedule();

/// Counted over all launches since the last reset.
struct Statistics {
  std::uint64_t blocks = 0;
  std::uint64_t barriers = 0;        // of a whole block
  std::uint64_t collectives = 0;     // shuffles, votes, matrix instructions: once per warp
  std::uint64_t switches = 0;        // from one thread's stack to another's
  std::uint64_t matrix_loads = 0;    // of 8x8 elements, by ldmatrix
  std::uint64_t bank_conflicts = 0;  // turns beyond the first that these took to read shared memory
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
