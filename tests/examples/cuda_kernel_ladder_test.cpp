// The rungs of the ladders for a GPU are right under every schedule.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/examples/host_results.h"
#include "tests/support/schedules.h"

namespace tessera::kernel_ladder {
namespace {

// Rows that rung 3 takes: one vector; a warp's vectors and one more; all that it holds; more rows
// than a block of either kind has.
constexpr std::array<std::array<std::int64_t, 2>, 4> kShapes = {
    {{1, 4}, {9, 132}, {3, 1024}, {300, 12}}};

}  // namespace

TEST_CASE(
    "every rung of the ladder of norms for a GPU errs by no more than its roundings explain") {
  for (const auto& [N, C] : kShapes) {
    for (const Rung<norm::Norm>& rung : norm::kGpuRungs) {
      INFO(fmt::format("{}: [{}, {}]", rung.name, N, C));
      test::for_every_schedule([&, N = N, C = C] {
        const norm::Operands rows(N, C);
        rung.run(rows.problem());
        test::HostNorm results(rows);
        CHECK(norm::largest_error(results.problem()) <= norm::most_error(results.problem()));
      });
    }
  }
}

TEST_CASE(
    "every rung of the ladder of softmaxes for a GPU errs by no more than its roundings explain") {
  for (const auto& [N, C] : kShapes) {
    for (const Rung<softmax::Softmax>& rung : softmax::kGpuRungs) {
      INFO(fmt::format("{}: [{}, {}]", rung.name, N, C));
      test::for_every_schedule([&, N = N, C = C] {
        const softmax::Operands rows(N, C);
        rung.run(rows.problem());
        test::HostSoftmax results(rows);
        CHECK(softmax::largest_error(results.problem(), true) <=
              softmax::most_error(results.problem()));
      });
    }
  }
}

// Heads and tokens: one token; less than a tile; whole tiles of keys and one more; whole tiles of
// queries and some more.
constexpr std::array<std::array<std::int64_t, 2>, 4> kHeadShapes = {
    {{1, 1}, {2, 37}, {1, 97}, {3, 150}}};

TEST_CASE(
    "every rung of the ladder of attention for a GPU errs by no more than its roundings explain") {
  for (const auto& [H, T] : kHeadShapes) {
    for (const attention::GpuRung& rung : attention::kGpuRungs) {
      INFO(fmt::format("{}: {} heads of {} tokens", rung.name, H, T));
      test::for_every_schedule([&, H = H, T = T] {
        const attention::Operands heads(H, T, attention::kGpuChannels, 40.0f,
                                        rung.rounds_to_bf16 ? DType::bf16 : DType::f32);
        rung.run(heads.problem());
        test::HostAttention results(heads);
        CHECK(attention::largest_error(results.problem()) <=
              attention::most_error(results.problem(), rung.rounds_to_bf16));
      });
    }
  }
}

}  // namespace tessera::kernel_ladder
