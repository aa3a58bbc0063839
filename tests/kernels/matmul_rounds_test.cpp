// Rounds of the CPU's products, and the order in which threads take their tasks.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <iterator>
#include <map>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "kernels/matmul/cpu/pipeline.h"
#include "kernels/matmul/cpu/rounds.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using cpu::RoundTasks;

struct Case {
  std::int64_t M, N, K;
  bool transpose_a;
  std::int64_t products = 1;
  std::int64_t sections = 1;
};

/// One round; several of columns; of rows, with b's panels kept or not; of depth, alone or with rows
/// and columns; several products in a round; columns that are worth packing rows for; sections in
/// rounds of columns, of rows and columns with b's panels kept, and of all three.
constexpr Case kCases[] = {
    {200, 130, 64, false},        {200, 1200, 600, false},       {1700, 800, 1100, true},
    {1700, 1500, 1100, true},     {130, 40, 3000, false},        {200, 300, 3000, true},
    {1400, 400, 3000, true},      {150, 90, 1000, true, 7},      {300, 1700, 700, false},
    {200, 600, 600, false, 1, 2}, {1700, 400, 1100, true, 1, 2}, {1400, 300, 3000, true, 1, 2}};

/// The panels that a slab packs or reads.
using Content = std::tuple<const cpu::Product*, std::int64_t, std::int64_t>;

std::vector<cpu::Product> products_of(const Case& c) {
  return std::vector<cpu::Product>(static_cast<std::size_t>(c.products),
                                   {.M = c.M,
                                    .N = c.N,
                                    .K = c.K,
                                    .a_row = c.transpose_a ? c.M : c.K,
                                    .b_row = c.sections * c.N,
                                    .c_row = c.sections * c.N});
}

}  // namespace

TEST_CASE("slabs read their own panels and add to sums in order while rounds are packed ahead",
          "[cpu]") {
  for (const int threads : {1, 2}) {
    const test::Rank rank(threads);
    const cpu::Engine& engine = cpu::engine_for(cpu::best_isa(), DType::f32);
    for (const Case& c : kCases) {
      CAPTURE(threads, c.M, c.N, c.K, c.transpose_a, c.products);
      const std::vector<cpu::Product> products = products_of(c);
      const cpu::ProductList list = {.transpose_a = c.transpose_a,
                                     .M = c.M,
                                     .N = c.N,
                                     .K = c.K,
                                     .sections = c.sections,
                                     .count = c.products,
                                     .rows = c.products * c.M};
      const cpu::Rounds planned(engine, list, products);
      const auto& rounds = planned.rounds();
      // The parts of memory in use, by address. A later part that covers an earlier one replaces it.
      std::map<const char*, std::pair<const char*, Content>> memory;
      const auto pack = [&](const char* begin, std::int64_t bytes, const Content& content) {
        auto part = memory.lower_bound(begin);  // parts do not overlap
        if (part != memory.begin() && std::prev(part)->second.first > begin) --part;
        while (part != memory.end() && part->first < begin + bytes) part = memory.erase(part);
        memory[begin] = {begin + bytes, content};
      };
      const auto pack_round = [&](const cpu::Round& round) {
        for (const cpu::Slab& s : round.slabs) {
          const std::int64_t line = cpu::line_bytes(engine, s.depth);
          const auto bytes = [&](std::int64_t lines, int width) {
            return (lines + width - 1) / width * width * line;
          };
          if (s.pack_a) pack(s.a, bytes(s.rows, engine.rows), {s.product, s.depth_begin, s.row});
          if (s.pack_b) {
            pack(s.b, c.sections * bytes(s.columns, engine.columns),
                 {s.product, s.depth_begin, s.column});
          }
        }
      };
      std::int64_t elements = 0;
      pack_round(rounds[0]);
      for (std::size_t r = 0; r < rounds.size(); ++r) {
        if (r > 0 && (threads == 1 || rounds[r].overwrites)) pack_round(rounds[r]);
        if (threads > 1 && r + 1 < rounds.size() && !rounds[r + 1].overwrites) {
          pack_round(rounds[r + 1]);
        }
        for (const cpu::Slab& s : rounds[r].slabs) {
          if (r > 0 && s.depth_begin > 0) {  // both add to these elements of c
            const cpu::Slab& before = rounds[r - 1].slabs[0];
            const bool same = s.row == before.row && s.column == before.column;
            CHECK(rounds[r].continues == same);
          }
          elements += s.rows * s.columns * s.depth;
          REQUIRE(memory.contains(s.b));
          CHECK(memory[s.b].second == Content{s.product, s.depth_begin, s.column});
          if (s.a == nullptr) continue;
          REQUIRE(memory.contains(s.a));
          CHECK(memory[s.a].second == Content{s.product, s.depth_begin, s.row});
        }
      }
      CHECK(elements == c.products * c.M * c.N * c.K);
    }
  }
}

TEST_CASE("tasks of rounds wait for what they read and overwrite", "[cpu]") {
  const std::vector<RoundTasks> rounds = {{.panels = 5, .blocks = 7},
                                          {.panels = 2, .blocks = 1},
                                          {.panels = 0, .blocks = 6},
                                          {.panels = 3, .blocks = 9, .overwrites = true},
                                          {.panels = 1, .blocks = 4, .continues = true},
                                          {.panels = 4, .blocks = 5}};
  for (const int threads : {1, 2, 3, 8}) {
    for (int turn = 0; turn < 20; ++turn) {
      const test::Rank rank(threads);
      std::vector<std::atomic<int>> packed(rounds.size()), multiplied(rounds.size());
      std::atomic<int> errors{0};
      const auto expect = [&](bool holds) {
        if (!holds) ++errors;
      };
      const auto blocks_done = [&](std::size_t count) {
        for (std::size_t r = 0; r < count; ++r) expect(multiplied[r] == rounds[r].blocks);
      };
      // Some work, so that the threads' tasks overlap.
      const auto work = [&](std::int64_t i) {
        volatile std::int64_t sum = 0;
        for (std::int64_t k = 0; k < (i + turn) % 5 * 2000; ++k) sum = sum + k;
      };
      cpu::run_rounds(
          rounds,
          [&](std::size_t r, std::int64_t i) {
            for (std::size_t p = 0; p < r; ++p) expect(packed[p] == rounds[p].panels);
            blocks_done(rounds[r].overwrites ? r : std::max<std::size_t>(r, 1) - 1);
            work(i);
            ++packed[r];
          },
          [&](std::size_t r, std::int64_t i) {
            expect(packed[r] == rounds[r].panels);
            blocks_done(rounds[r].continues ? r : std::max<std::size_t>(r, 1) - 1);
            work(i);
            ++multiplied[r];
          });
      blocks_done(rounds.size());
      CHECK(errors == 0);
    }
  }
}

TEST_CASE("an error in a round's task ends the rounds", "[cpu]") {
  for (const bool packs : {true, false}) {
    const test::Rank rank(3);
    const std::vector<RoundTasks> rounds(4, {.panels = 3, .blocks = 8});
    const auto fail_at = [](std::size_t r, std::int64_t i) {
      if (r == 1 && i == 2) throw std::runtime_error("planned");
    };
    const auto nothing = [](std::size_t, std::int64_t) {};
    CHECK_THROWS_WITH(packs ? cpu::run_rounds(rounds, fail_at, nothing)
                            : cpu::run_rounds(rounds, nothing, fail_at),
                      "planned");
  }
}

TEST_CASE("rounds of columns, rows and depth have one thread's bits", "[cpu]") {
  for (const Case& c : kCases) {
    if (c.products > 1 || c.sections > 1) continue;
    CAPTURE(c.M, c.N, c.K, c.transpose_a);
    test::require_equal_under_every_schedule([&] {
      const Transpose ta = c.transpose_a ? Transpose::yes : Transpose::no;
      const Tensor a =
          test::normal_tensor(c.transpose_a ? Shape{c.K, c.M} : Shape{c.M, c.K}, DType::f32, "a");
      const Tensor b = test::normal_tensor({c.K, c.N}, DType::f32, "b");
      const Tensor result = Tensor::empty({c.M, c.N}, DType::f32);
      matmul(result, a, b, ta);
      return result.to_vector<float>();
    });
  }
}

}  // namespace tessera
