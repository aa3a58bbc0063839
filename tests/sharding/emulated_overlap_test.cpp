// Kernels with a persistent grid that start while a collective of NCCL holds a multiprocessor. The emulated
// GPU has four.
#include <catch2/catch.hpp>
#include <functional>

#include "kernels/grouped_matmul/op.h"
#include "kernels/matmul/op.h"
#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/device/held.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "runtime/emulation/toolkit/nccl_model.h"
#include "sharding/comm/nccl/nccl.h"
#include "sharding/comm/threads/threads.h"
#include "tests/kernels/attention_problem.h"
#include "tests/sharding/communicator_checks.h"
#include "tests/sharding/ranks.h"
#include "tests/support/test_clock.h"

namespace tessera {
namespace {

using emulation::HeldLaunch;
using Queue = std::function<void()>;

/// A kernel of rank 0 that starts while a collective holds multiprocessors. `prepare` makes the operands, and
/// returns the call that queues the kernel. `products`: of the whole kernel.
HeldLaunch under_collective(const std::function<Queue()>& prepare, std::uint64_t& products,
                            const emulation::NcclModel& collective = {.multiprocessors = 1},
                            NcclOptions options = {.ctas = 1}) {
  emulation::DeviceOptions devices = emulation::device_options();
  devices.progress = emulation::Progress::lazy;
  devices.devices = 2;
  const emulation::DeviceOptionsGuard guard(devices);
  const emulation::NcclModelGuard model(collective);
  test::TestClock clock;  // no time passes: NCCL's watcher asks for no progress
  HeldLaunch held;
  const auto body = [&](Communicator& world) {
    const Stream& side = context().side_stream("side");
    const Tensor x = test::tensor_of(world.rank(), 64);
    const Queue queue = world.rank() == 0 ? prepare() : Queue();
    test::compute().synchronize();
    side.wait(test::compute().record());
    world.all_reduce({x}, side);
    if (queue) {
      products = emulation::statistics().warpgroup_products;
      queue();
      test::compute().synchronize();
      products = emulation::statistics().warpgroup_products - products;
      held = emulation::last_held_launch();
    }
    side.synchronize();
  };
  run_ranks({.ranks = 2,
             .device = {DeviceType::cuda, 0},
             .threads = 1,
             .communicator = CommunicatorKind::nccl},
            [&](Communicator& control) {
              options.deadline = {test::kSafetyLimit, clock};
              run_with_nccl(control, options, body);
            });
  return held;
}

constexpr std::uint64_t kFree = 3;  // multiprocessors

}  // namespace

TEST_CASE("grouped products under a collective take the tiles of the free multiprocessors' time") {
  constexpr std::uint64_t kTiles = 9;  // of 128 x 128
  std::uint64_t products = 0;
  const auto prepare = []() -> Queue {
    constexpr std::int64_t kRows = kTiles * 128;
    const Tensor a = test::normal_tensor({kRows, 64}, DType::bf16, "a"),
                 b = test::normal_tensor({1, 64, 128}, DType::bf16, "b"),
                 c = Tensor::empty({kRows, 128}, DType::bf16),
                 offsets = Tensor::from(std::vector<std::int32_t>{0, kRows}, {2});
    return [=] { grouped_matmul(c, a, b, offsets); };
  };
  const HeldLaunch held = under_collective(prepare, products);
  REQUIRE(held.early_blocks == kFree);
  CHECK(held.longest_late == 0);
  CHECK(held.length() * kTiles <= products * ((kTiles + kFree - 1) / kFree + 1));
}

namespace {

/// Products of cuBLASLt that count on multiprocessors that a collective holds, of one.
std::uint64_t crowded_of(const NcclOptions& options) {
  const std::uint64_t before = emulation::crowded_products();
  const auto prepare = []() -> Queue {
    const Tensor a = test::normal_tensor({32, 64}, DType::f32, "a"),
                 b = test::normal_tensor({64, 32}, DType::f32, "b"),
                 c = Tensor::empty({32, 32}, DType::f32);
    return [=] { matmul(c, a, b); };
  };
  std::uint64_t products = 0;
  under_collective(prepare, products, {.multiprocessors = 2}, options);
  return emulation::crowded_products() - before;
}

}  // namespace

TEST_CASE("cuBLASLt counts on the multiprocessors that NCCL leaves") {
  CHECK(crowded_of({.ctas = 2}) == 0);
  CHECK(crowded_of({.ctas = 1}) == 0);
}

TEST_CASE("with deterministic sums cuBLASLt's algorithms do not depend on NCCL") {
  CHECK(crowded_of({.deterministic = true, .ctas = 2}) == 1);
}

TEST_CASE("a collective holds no more multiprocessors than it may have thread blocks") {
  std::uint64_t products = 0;
  const auto prepare = []() -> Queue {
    const test::AttentionProblem problem({1, 640, 640, 1, 1, 64}, DType::bf16);
    return [=] { problem.forward(); };
  };
  const HeldLaunch held = under_collective(prepare, products, {.multiprocessors = 3}, {.ctas = 2});
  CHECK(held.early_blocks == 2);
}

TEST_CASE("a block of attention that a collective has kept waiting begins no piece of the others") {
  std::uint64_t products = 0;
  const auto prepare = []() -> Queue {
    const test::AttentionProblem problem({1, 640, 640, 1, 1, 64}, DType::bf16);
    return [=] { problem.forward(); };
  };
  const HeldLaunch held = under_collective(prepare, products);
  REQUIRE(held.early_blocks == kFree);
  CHECK(held.early == products);
  CHECK(held.longest_late == 0);
}

}  // namespace tessera
