#include "kernels/matmul/cpu/pipeline.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "runtime/context.h"
#include "runtime/countdown.h"
#include "runtime/integer.h"
#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

/// Neighbours in the order of tasks: some panels or blocks of a round.
struct Stretch {
  std::size_t round;
  bool packs;
  std::int64_t first;  // of its panels or blocks
  std::int64_t end;    // in the order of all tasks
};

/// `ahead`: panels come in the middle of the blocks of the round before, where they may.
std::vector<Stretch> order_of(std::span<const RoundTasks> rounds, bool ahead) {
  std::vector<Stretch> order;
  std::int64_t end = 0;
  const auto add = [&](std::size_t round, bool packs, std::int64_t first, std::int64_t last) {
    if (last > first) order.push_back({round, packs, first, end += last - first});
  };
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const RoundTasks& tasks = rounds[round];
    if (round == 0 || !ahead || tasks.overwrites) add(round, true, 0, tasks.panels);
    const bool next_ahead = ahead && round + 1 < rounds.size() && !rounds[round + 1].overwrites;
    const std::int64_t middle = next_ahead ? ceil_div(tasks.blocks, 2) : tasks.blocks;
    add(round, false, 0, middle);
    if (next_ahead) add(round + 1, true, 0, rounds[round + 1].panels);
    add(round, false, middle, tasks.blocks);
  }
  return order;
}

/// Tasks of a round that have not ended.
struct Left {
  std::atomic<int> panels{0}, blocks{0};
};

/// Counts down when a task ends, also by an exception: another thread may wait for it.
class Ending {
 public:
  explicit Ending(std::atomic<int>& left) : left_(left) {}
  ~Ending() { count_down(left_); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  std::atomic<int>& left_;
};

}  // namespace

void run_rounds(std::span<const RoundTasks> rounds, const RoundTask& pack,
                const RoundTask& multiply) {
  ThreadTeam& threads = context().threads();
  const std::vector<Stretch> order = order_of(rounds, threads.size() > 1);
  if (order.empty()) return;
  std::vector<Left> left(rounds.size());
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    left[r].panels = static_cast<int>(rounds[r].panels);
    left[r].blocks = static_cast<int>(rounds[r].blocks);
  }
  /// For blocks of the round that lies `distance` rounds before this one.
  const auto wait_for_blocks = [&](std::size_t round, std::size_t distance) {
    if (round >= distance) wait_for_zero(left[round - distance].blocks);
  };
  std::vector<std::int64_t> ends;
  for (const Stretch& stretch : order) ends.push_back(stretch.end);
  threads.run_in_groups(ends, [&](std::int64_t i) {
    const auto at =
        std::upper_bound(order.begin(), order.end(), i,
                         [](std::int64_t task, const Stretch& s) { return task < s.end; });
    const std::size_t round = at->round;
    const std::int64_t index = at->first + i - (at == order.begin() ? 0 : std::prev(at)->end);
    const Ending ending(at->packs ? left[round].panels : left[round].blocks);
    wait_for_blocks(round, 2);
    if (at->packs) {
      wait_for_blocks(round, 3);  // a round without panels has not waited for it
      if (rounds[round].overwrites) wait_for_blocks(round, 1);
      if (round > 0) wait_for_zero(left[round - 1].panels);
      pack(round, index);
    } else {
      if (rounds[round].continues) wait_for_blocks(round, 1);
      wait_for_zero(left[round].panels);
      multiply(round, index);
    }
  });
}

}  // namespace tessera::cpu
