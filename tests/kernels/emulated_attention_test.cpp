// What only the emulator sees of attention.
#include <catch2/catch.hpp>

#include "runtime/emulation/device/emulator.h"
#include "tests/kernels/attention_problem.h"
#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("tensor cores read attention's tiles without bank conflicts") {
  const test::Rank rank;
  for (const std::int64_t head_size : {64, 128}) {
    const test::AttentionProblem problem({1, 70, 70, 1, 1, head_size}, DType::bf16);
    emulation::reset_statistics();
    problem.forward();
    problem.backward();
    test::elements(problem.dq);  // launches wait for whoever wants their results
    REQUIRE(emulation::statistics().matrix_loads > 0);
    REQUIRE(emulation::statistics().bank_conflicts == 0);
  }
}

}  // namespace tessera
