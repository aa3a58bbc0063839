// The rungs of the ladders for a GPU are right under every schedule.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/examples/gpu_rows.h"
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
        const test::GpuNorm rows(N, C);
        rung.run(rows.problem());
        test::HostNorm results = rows.results();
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
        const test::GpuSoftmax rows(N, C);
        rung.run(rows.problem());
        test::HostSoftmax results = rows.results();
        CHECK(softmax::largest_error(results.problem(), true) <=
              softmax::most_error(results.problem()));
      });
    }
  }
}

}  // namespace tessera::kernel_ladder
