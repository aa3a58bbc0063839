// The order of a product's tasks: panels of one round are packed while the round before is multiplied.
//
//   panels 0 | blocks 0 ... panels 1 ... blocks 0 | blocks 1 ... panels 2 ... blocks 1 | ...
//
// The threads take groups of tasks in this order. There is no barrier between rounds: a task waits only
// for those whose results it reads or overwrites, and by then these have nearly always ended. So a thread
// that ends a round early goes on. Threads of unequal speed wait for each other after the last block.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace tessera::cpu {

/// The number of a round's tasks.
struct RoundTasks {
  std::int64_t panels = 0, blocks = 0;
  bool continues = false;   // its blocks add to the sums of the round before
  bool overwrites = false;  // its panels lie where those of the round before do
};

/// A task of a round. Panels and blocks are counted apart.
using RoundTask = std::function<void(std::size_t round, std::int64_t index)>;

/// Calls `pack` for all panels and `multiply` for all blocks on the rank's threads.
///
/// A block follows all panels of its round and all blocks of the rounds before, but for those of the
/// last one unless its round continues that. Panels follow those of the rounds before and the same
/// blocks, also of the last round if theirs overwrites its panels.
void run_rounds(std::span<const RoundTasks> rounds, const RoundTask& pack,
                const RoundTask& multiply);

}  // namespace tessera::cpu
