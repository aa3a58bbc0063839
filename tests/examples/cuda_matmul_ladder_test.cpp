// The rungs of the ladder of products for a GPU are right under every schedule.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>

#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "tests/examples/host_results.h"
#include "tests/support/schedules.h"

namespace tessera::kernel_ladder {
namespace {

// M, N, K: one row; less than a tile, with a depth between two tiles; whole tiles; more than one tile
// each way.
constexpr std::array<std::array<std::int64_t, 3>, 4> kShapes = {
    {{1, 8, 8}, {9, 40, 72}, {128, 128, 32}, {130, 136, 40}}};

}  // namespace

TEST_CASE("every rung of the ladder of products for a GPU has the bits of three loops") {
  for (const auto& [M, N, K] : kShapes) {
    for (const MatmulRung& rung : matmul::kGpuRungs) {
      INFO(fmt::format("{}: [{}, {}] x [{}, {}]", rung.name, M, K, K, N));
      test::for_every_schedule([&, M = M, N = N, K = K] {
        const Operands operands(M, N, K, DType::f32);
        rung.run(operands.product<float>());
        test::HostProduct<float> results(operands);
        const std::vector<float> c = results.c;
        three_loops(results.problem());
        CHECK(c == results.c);
      });
    }
  }
}

TEST_CASE("the rung of tensor cores errs by no more than its roundings explain") {
  for (const auto& [M, N, K] : kShapes) {
    INFO(fmt::format("[{}, {}] x [{}, {}]", M, K, K, N));
    test::for_every_schedule([&, M = M, N = N, K = K] {
      const Operands operands(M, N, K, DType::bf16);
      matmul::tensor_cores(operands.product<bfloat16>());
      test::HostProduct<bfloat16> results(operands);
      CHECK(largest_error(results.problem()) <= static_cast<double>(K));
    });
  }
}

}  // namespace tessera::kernel_ladder
