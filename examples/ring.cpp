// A ring all-reduce in rounds: each rank sends one part to its right neighbour only.
//
//   build/bin/ring [RANKS]
//
// Prints the rank's parts after every round, for docs/collectives.md. Part p of rank r begins as
// 10 r + p; a part that still misses ranks is in brackets.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "examples/ranks.h"
#include "sharding/comm/threads/threads.h"

using namespace tessera;

namespace {

using Table = std::vector<std::vector<float>>;  // by rank and part

/// Sends one part to the right neighbour and receives one from the left. Both are numbers of parts.
float exchange(Communicator& world, float sent_value) {
  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  const auto only = [&](int rank) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 0);
    counts[static_cast<std::size_t>(rank)] = 1;
    return counts;
  };
  const Tensor received = Tensor::zeros({1}, DType::f32);
  const Tensor sent = Tensor::from(std::vector{sent_value}, {1});
  world.all_to_all_parts({received, only(left)}, {sent, only(right)}, context().compute_stream())
      .synchronize();
  return received.item<float>();
}

/// The part that `rank` sends in a round. In the first N - 1 rounds sums travel, then results.
std::size_t part_sent(int rank, int round, int ranks) {
  return static_cast<std::size_t>(((rank - round) % ranks + ranks) % ranks);
}

/// One rank of the ring. `tables[k]` gets its parts after k rounds.
void all_reduce(Communicator& world, std::vector<Table>& tables) {
  const int ranks = world.size(), rank = world.rank();
  const auto own = static_cast<std::size_t>(rank);
  std::vector<float> parts;
  for (int p = 0; p < ranks; ++p) parts.push_back(static_cast<float>(10 * rank + p));
  tables[0][own] = parts;
  const int left = (rank + ranks - 1) % ranks;
  for (int round = 0; round < 2 * (ranks - 1); ++round) {
    // The reduce-scatter ends with part r + 1 complete on rank r, where the all-gather begins.
    const int turn = round < ranks - 1 ? round : round - ranks;
    const float received = exchange(world, parts[part_sent(rank, turn, ranks)]);
    float& part = parts[part_sent(left, turn, ranks)];
    part = round < ranks - 1 ? part + received : received;
    tables[static_cast<std::size_t>(round) + 1][own] = parts;
  }
}

void print(const std::string& title, const Table& table, const Table& result) {
  fmt::print("{}\n", title);
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    std::string line = fmt::format("  rank {} ", rank);
    for (std::size_t p = 0; p < table.size(); ++p) {
      const bool complete = table[rank][p] == result[rank][p];
      const std::string number = fmt::format("{:.0f}", table[rank][p]);
      line += fmt::format("{:>6}", complete ? number + " " : "[" + number + "]");
    }
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

}  // namespace

int main(int argument_count, char** arguments) try {
  const int ranks = ranks_of(argument_count, arguments);
  const int rounds = 2 * (ranks - 1);
  std::vector<Table> tables(static_cast<std::size_t>(rounds) + 1,
                            Table(static_cast<std::size_t>(ranks)));
  std::int64_t sent = 0;
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    all_reduce(world, tables);
    if (world.rank() == 0) sent = world.bytes_sent();
  });
  print("before", tables.front(), tables.back());
  for (int round = 1; round <= rounds; ++round) {
    const std::string half = round < ranks ? "reduce-scatter" : "all-gather";
    print(fmt::format("round {}, {}", round, half), tables[static_cast<std::size_t>(round)],
          tables.back());
  }
  fmt::print("each rank has sent {} bytes in {} messages\n", sent, rounds);
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "ring: {}\n", error.what());
  return 1;
}
