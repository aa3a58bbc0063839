// Mistakes and missing ranks among ranks that talk through NCCL.
#include <atomic>
#include <catch2/catch.hpp>

#include "tests/sharding/nccl_ranks.h"

namespace tessera {

using test::compute;
using test::has_gpus;
using test::kDeterministic;
using test::kShort;
using test::run_nccl;
using test::tensor_of;

TEST_CASE("nccl: a rank that raises ends the others, and the first failure is reported") {
  if (!has_gpus(3)) return;
  REQUIRE_THROWS_WITH(run_nccl(3, kDeterministic,
                               [](Communicator& group) {
                                 if (group.rank() == 1) throw Error("out of patience");
                                 group.barrier(compute());
                               }),
                      "rank 1: out of patience");
}

TEST_CASE("nccl: ranks that disagree are both named") {
  if (!has_gpus(3)) return;
  REQUIRE_THROWS_WITH(run_nccl(3, kDeterministic,
                               [](Communicator& group) {
                                 const Tensor x = tensor_of(0, group.rank() == 2 ? 8 : 4);
                                 group.all_reduce({x}, compute(), "h.0");
                               }),
                      Catch::Contains("all_reduce of 16 bytes in 1 tensor, for h.0, rank 2 makes"));
}

TEST_CASE("nccl: a missing rank is named when the deadline has passed") {
  if (!has_gpus(3)) return;
  test::TestClock clock;
  const Deadline deadline(kShort, clock);
  std::atomic<int> here = 0, gone = 0;
  const auto body = [&](Communicator& group) {
    if (group.rank() == 1) {
      test::wait_for("the others are here", [&] { return here == 2; });
      clock.pass_when_waiting(2, kShort);
      test::wait_for("the others have given up", [&] { return gone == 2; });
      return;
    }
    ++here;
    try {
      group.barrier(compute());
    } catch (const Error&) {
      ++gone;
      throw;
    }
  };
  REQUIRE_THROWS_WITH(run_nccl(3, {.deadline = deadline}, body, 0, deadline),
                      Catch::Contains("waited 300 ms") && Catch::Contains("for rank 1"));
}

TEST_CASE("nccl: two ranks on one GPU are an error") {
  const auto with_nccl = [](Communicator& control) {
    run_with_nccl(control, {}, [](Communicator&) {});
  };
  REQUIRE_THROWS_WITH(test::on_ranks(2, with_nccl), Catch::Contains("NCCL: connecting"));
}

#if defined(TESSERA_EMULATED)
TEST_CASE("nccl: ranks that disagree after two steps are both named at the step's end") {
  const auto body = [](Communicator& world) {
    for (int step = 0; step < 3; ++step) {
      const Tensor x = tensor_of(world.rank(), 4);
      const bool other = step == 2 && world.rank() == 1;
      world.all_reduce({x}, compute(), other ? "h.2" : "h.1");
      world.next_step(compute());
    }
  };
  const NcclOptions options = {.deadline = test::kSafetyLimit,
                               .check_collectives = CheckCollectives::first_steps};
  CHECK_THROWS_WITH(
      run_nccl(2, options, body),
      Catch::Contains("rank 0 makes call 2, all_reduce of 16 bytes in 1 tensor, for h.1, rank 1 "
                      "makes call 2, all_reduce of 16 bytes in 1 tensor, for h.2"));
}
#endif

}  // namespace tessera
