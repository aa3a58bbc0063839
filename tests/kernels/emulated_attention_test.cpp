// Properties of attention's kernels that only the emulator shows.
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/cuda/schedule.h"
#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/device/events.h"
#include "tests/kernels/attention_problem.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Sizes = test::AttentionSizes;

using Catch::Contains;
using test::Capability;

/// Outputs and gradients on a GPU of this compute capability.
std::vector<std::vector<double>> results_on(int capability, const Sizes& sizes, DType dtype,
                                            const std::vector<std::int32_t>& first_key = {}) {
  const Capability gpu(capability);
  const test::Rank rank;
  test::AttentionProblem problem(sizes, dtype);
  if (!first_key.empty()) {
    problem.first_key = Tensor::from(first_key, {sizes.batch, sizes.queries});
  }
  problem.run();
  return test::results_of(problem);
}

/// How many scores of each consumer were started by its first warp while a sum of gradients was in flight.
std::array<int, 2> overlaps_in_backward(const test::AttentionProblem& problem) {
  using emulation::EventKind;
  problem.forward();
  current_stream().synchronize();
  emulation::start_event_list();
  problem.backward();
  current_stream().synchronize();
  struct Warp {
    bool sums = false;  // the group at hand adds to a gradient
    int last_sum = -1;  // the last group that did
    int complete = -1;  // the last complete group
  };
  std::map<std::pair<unsigned, unsigned>, Warp> warps;
  std::array<int, 2> overlaps{};
  for (const emulation::KernelEvent& event : emulation::take_event_list()) {
    Warp& warp = warps[{event.block, event.warp}];
    if (event.kind == EventKind::tiles_multiplied) warp.sums = false;
    if (event.kind == EventKind::registers_multiplied) warp.sums = true;
    if (event.kind == EventKind::products_waited) warp.complete = event.number;
    if (event.kind != EventKind::products_committed) continue;
    if (warp.sums) {
      warp.last_sum = event.number;
    } else if (warp.last_sum > warp.complete && event.warp % 4 == 0) {
      ++overlaps.at(event.warp / 4 - 1);
    }
  }
  return overlaps;
}

}  // namespace

TEST_CASE("tensor cores read attention's tiles without bank conflicts") {
  for (const int capability : {80, 86}) {
    const Capability gpu(capability);
    const test::Rank rank;
    for (const std::int64_t head_size : {64, 72, 80, 96, 128, 192, 256}) {
      const test::AttentionProblem problem({1, 70, 70, 1, 1, head_size}, DType::bf16);
      emulation::reset_statistics();
      problem.run();
      test::elements(problem.dq);  // launches run when the host waits for their results
      REQUIRE(emulation::statistics().matrix_loads > 0);
      REQUIRE(emulation::statistics().bank_conflicts == 0);
    }
  }
}

// Documents as long as a block have no tile in common. The copy engine loads tiles on an sm_90.
TEST_CASE("attention of packed documents reads the tiles of the documents alone, and no others") {
  const auto reads = [](const test::AttentionProblem& problem) {
    emulation::reset_statistics();
    problem.run();
    test::elements(problem.dq);  // launches run when the host waits for their results
    return emulation::statistics().matrix_loads + emulation::statistics().tile_copies;
  };
  for (const auto& [capability, head_size] :
       {std::pair{80, 64}, std::pair{80, 128}, std::pair{90, 64}, std::pair{90, 128}}) {
    const Capability gpu(capability);
    const test::Rank rank;
    const test::AttentionProblem alone({1, 128, 128, 1, 1, head_size}, DType::bf16);
    test::AttentionProblem packed({1, 384, 384, 1, 1, head_size}, DType::bf16);
    const std::uint64_t causal = reads(packed), of_one = reads(alone);
    std::vector<std::int32_t> first;
    for (int t = 0; t < 384; ++t) first.push_back(t / 128 * 128);
    packed.first_key = Tensor::from(first, {1, 384});
    REQUIRE(of_one > 0);
    REQUIRE(reads(packed) == 3 * of_one);
    // On an sm_90 a tile of queries is copied once for the 2 or 3 of keys that it sees.
    REQUIRE(causal > (capability == 90 ? 4 : 5) * of_one);
  }
}

// The tile of dK and dV depends on the GPU. Tails and a diagonal off the corner, grouped heads.
TEST_CASE("attention of heads of 128 gives the same bits on GPUs with 99 and 163 KiB") {
  for (const Sizes& sizes : {Sizes{1, 150, 150, 1, 1, 128}, Sizes{1, 33, 140, 4, 2, 128}}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const auto expected = results_on(80, sizes, dtype);
      for (const int capability : {86, 89}) {
        INFO(name_of(dtype) << " on sm_" << capability);
        REQUIRE((results_on(capability, sizes, dtype) == expected));
      }
    }
  }
  std::vector<std::int32_t> documents(150, 0);
  std::fill(documents.begin() + 71, documents.end(), 71);
  for (const std::int64_t head_size : {80, 128}) {
    const Sizes sizes{1, 150, 150, 1, 1, head_size};
    const auto expected = results_on(80, sizes, DType::bf16, documents);
    REQUIRE((results_on(86, sizes, DType::bf16, documents) == expected));
  }
}

// The tile has 32 queries where two blocks of 103 KB fit a multiprocessor, and 16 elsewhere.
TEST_CASE("attention of heads of 256 gives the same bits on GPUs with 99, 163 and 227 KiB") {
  std::vector<std::int32_t> documents(75, 0);
  std::fill(documents.begin() + 41, documents.end(), 41);
  for (const std::vector<std::int32_t>& first_key : {std::vector<std::int32_t>(), documents}) {
    const Sizes sizes{1, 75, 75, 2, 1, 256};
    const auto expected = results_on(90, sizes, DType::bf16, first_key);
    for (const int capability : {80, 89, 120}) {
      INFO("sm_" << capability);
      REQUIRE((results_on(capability, sizes, DType::bf16, first_key) == expected));
    }
  }
}

TEST_CASE("a GPU with 99 KiB has no room for heads above 128 channels in f32, and says so") {
  const Sizes sizes{1, 3, 3, 1, 1, 136};
  REQUIRE_NOTHROW(results_on(80, sizes, DType::f32));
  for (const int capability : {89, 120}) {
    REQUIRE_NOTHROW(results_on(capability, sizes, DType::bf16));
    REQUIRE_THROWS_WITH(results_on(capability, sizes, DType::f32),
                        Contains("attention_forward: heads of 136 channels take") &&
                            Contains("this GPU has 101376; use smaller heads"));
  }
}

// The kernels' names, without those of their templates.
TEST_CASE("a GPU of architecture 9.0 takes heads of 64 and 128 with Hopper's kernels") {
  const auto uses = [](int capability, std::int64_t head_size) {
    std::map<std::string, std::uint64_t> launches;
    const auto count = [&](int sign) {
      for (const emulation::KernelUse& use : emulation::kernel_uses()) {
        for (const char* name :
             {"forward_hopper", "backward_hopper", "attention::(anonymous namespace)::statistics",
              "forward_mma", "key_value_gradient_mma", "query_gradient_mma"}) {
          // "query_gradient" is not a part of "key_value_gradient".
          if (use.kernel.find(name) == std::string::npos) continue;
          launches[name] += sign > 0 ? use.launches : ~use.launches + 1;
        }
      }
    };
    count(-1);
    results_on(capability, {1, 3, 3, 1, 1, head_size}, DType::bf16);
    count(+1);
    std::erase_if(launches, [](const auto& use) { return use.second == 0; });
    return launches;
  };
  const std::map<std::string, std::uint64_t> hopper = {
      {"forward_hopper", 1},
      {"attention::(anonymous namespace)::statistics", 1},
      {"backward_hopper", 1}};
  const std::map<std::string, std::uint64_t> mma = {
      {"forward_mma", 1}, {"key_value_gradient_mma", 1}, {"query_gradient_mma", 1}};
  for (const std::int64_t head_size : {40, 64, 72, 80, 96, 112, 128, 136, 192, 256}) {
    CAPTURE(head_size);
    REQUIRE(uses(90, head_size) == (head_size == 64 || head_size == 128 ? hopper : mma));
    REQUIRE(uses(80, head_size) == mma);
  }
  for (const std::int64_t head_size : {32, 68, 132}) REQUIRE(uses(90, head_size).empty());
}

// Unaligned rows, and keys that one block of the other kernels takes, are not split.
TEST_CASE("one query over more than 128 keys has a thread block for each 128 of each key head") {
  const auto blocks_of = [](const Sizes& sizes, DType dtype) {
    const test::Rank rank;
    const test::AttentionProblem problem(sizes, dtype);
    emulation::start_launch_list();
    problem.forward();
    current_stream().synchronize();
    std::map<std::string, std::uint64_t> blocks;
    for (const emulation::LaunchRecord& launch : emulation::take_launch_list()) {
      for (const char* name : {"split_kernel", "combine_kernel"}) {
        if (launch.kernel.find(name) != std::string::npos) blocks[name] += launch.blocks;
      }
    }
    return blocks;
  };
  using Blocks = std::map<std::string, std::uint64_t>;
  for (const int capability : {80, 90}) {
    const Capability gpu(capability);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      // 2 key heads of 8 splits, and 8 query heads of 2 times 32 channels.
      CHECK(blocks_of({1, 1, 1000, 8, 2, 64}, dtype) ==
            Blocks{{"split_kernel", 16}, {"combine_kernel", 16}});
      // 17 query heads in blocks of 8.
      CHECK(blocks_of({2, 1, 129, 17, 1, 32}, dtype) ==
            Blocks{{"split_kernel", 2 * 3 * 2}, {"combine_kernel", 34}});
      CHECK(blocks_of({1, 1, 128, 8, 2, 64}, dtype).empty());
      CHECK(blocks_of({1, 2, 1000, 8, 2, 64}, dtype).empty());
    }
    CHECK(blocks_of({1, 1, 200, 2, 2, 20}, DType::bf16).empty());
  }
}

// The emulated GPU has 4 multiprocessors and 1 MiB of L2 cache. Each of the five rows has 3 blocks of keys
// and 6 of queries: 45 blocks for 4 thread blocks, in sections of three heads of keys and of two.
TEST_CASE("Hopper's attention of a whole batch gives the bits of each of its rows alone") {
  const Capability gpu(90);
  const test::Rank rank;
  const test::AttentionProblem batch({5, 300, 300, 2, 1, 64}, DType::bf16);
  batch.run();
  const test::AttentionProblem alone({1, 300, 300, 2, 1, 64}, DType::bf16);
  for (std::int64_t row = 0; row < 5; ++row) {
    const auto same = [&](const Tensor& x, const Tensor& of_batch) {
      return test::same_bits(x, of_batch.slice(row, row + 1));
    };
    alone.q.tensor.copy_from(batch.q.tensor.slice(row, row + 1));  // and k and v
    alone.d_o.tensor.copy_from(batch.d_o.tensor.slice(row, row + 1));
    alone.run();
    REQUIRE(same(alone.o.tensor, batch.o.tensor));
    REQUIRE(same(alone.dq.tensor, batch.dq.tensor));
    REQUIRE(same(alone.dk.tensor, batch.dk.tensor));
    REQUIRE(same(alone.dv.tensor, batch.dv.tensor));
  }
}

// Two blocks of keys and two heads of queries. Of the 8 steps and the 4 in the part of the keys, consumer 0 starts all
// but the first while dK is summed. Consumer 1 leaves out one of each head, and waits there. In the part of the queries
// one block of each head has a second tile.
TEST_CASE(
    "Hopper: a consumer's next scores are computed while the last tile's gradients are summed") {
  const Capability gpu(90);
  const test::Rank rank;
  using Overlaps = std::array<int, 2>;
  for (const std::int64_t head_size : {64, 128}) {
    test::AttentionProblem problem({1, 256, 256, 2, 1, head_size}, DType::bf16);
    CHECK(overlaps_in_backward(problem) == Overlaps{7 + 3 + 2, 2 + 2 + 2});
    problem.first_key = Tensor::zeros({1, 256}, DType::i32);
    const bool of_keys = head_size == 64;  // heads of 128 lack the registers
    CHECK(overlaps_in_backward(problem) ==
          (of_keys ? Overlaps{7 + 3 + 2, 2 + 2 + 2} : Overlaps{2, 2}));
  }
}

TEST_CASE("attention of heads that a GPU has no shared memory for is an error that says so") {
  using Catch::Contains;
  const Capability gpu(86);
  const test::Rank rank;
  const test::AttentionProblem problem({1, 5, 5, 1, 1, 136}, DType::f32);
  REQUIRE_THROWS_WITH(problem.forward(),
                      Contains("attention_forward: heads of 136 channels take 105984 bytes of "
                               "shared memory per block, and this GPU has 101376"));
  REQUIRE_THROWS_WITH(problem.backward(),
                      Contains("attention_backward: heads of 136 channels take 145408 bytes"));
  const test::AttentionProblem smaller({1, 5, 5, 1, 1, 128}, DType::f32);
  smaller.run();
  current_stream().synchronize();
}

TEST_CASE("attention's schedule visits every tile of every head once, a section after the other") {
  const test::Rank rank;
  for (const unsigned tiles : {1u, 2u, 3u, 7u}) {
    for (const unsigned heads : {1u, 2u, 5u, 11u}) {
      for (unsigned section = 1; section <= heads; ++section) {
        CAPTURE(tiles, heads, section);
        cuda::attention::Schedule schedule(tiles, 1, heads, 0);
        schedule.section = section;
        std::vector<int> visits(std::size_t{tiles} * heads, 0);
        unsigned last_section = 0;
        int last_turn = 0;
        for (unsigned block = 0; block < tiles * heads; ++block) {
          const auto place = schedule.place_of(block);
          REQUIRE(0 <= place.turn);
          REQUIRE(place.turn < static_cast<int>(tiles));
          REQUIRE(0 <= place.head);
          REQUIRE(place.head < static_cast<int>(heads));
          ++visits[static_cast<std::size_t>(place.head) * tiles +
                   static_cast<std::size_t>(place.turn)];
          const unsigned of_section = static_cast<unsigned>(place.head) / section;
          REQUIRE(of_section >= last_section);
          if (of_section > last_section) last_turn = 0;
          REQUIRE(place.turn >= last_turn);  // longest tiles first within a section
          last_section = of_section, last_turn = place.turn;
        }
        REQUIRE(visits == std::vector<int>(visits.size(), 1));
      }
    }
  }
}

TEST_CASE("attention's schedule cuts heads into sections that fit the cache") {
  using cuda::attention::Schedule;
  const test::Rank rank;
  CHECK(Schedule(1000, 128, 64, 1 << 10).section == 64);   // all of them
  CHECK(Schedule(1000, 128, 64, 100 << 10).section == 4);  // of 0.4 MiB
  CHECK(Schedule(1000, 128, 9, 100 << 10).section == 3);   // as even as can be: not 4, 4 and 1
  CHECK(Schedule(1000, 128, 64, std::int64_t{1} << 40).section == 1);
  CHECK(Schedule(1000, 128, 9, 1).with_sections(2).section == 2);
  CHECK(Schedule(1000, 128, 64, 1).tiles == 8);
}

}  // namespace tessera
