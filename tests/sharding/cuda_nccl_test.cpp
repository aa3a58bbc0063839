// Ranks that talk through NCCL: in emulated builds, threads that own an emulated GPU each and a
// stand-in for the library that is stricter than it; on a machine with GPUs, as many ranks as GPUs.
#include "sharding/comm/nccl/nccl.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/cuda/backend.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/comm/world.h"
#include "tests/sharding/random_calls.h"
#include "tests/support/device.h"
#include "tests/support/progress.h"

namespace tessera {

using test::compute;
using test::Findings;
using test::Floats;
using test::tensor_of;
using Body = std::function<void(Communicator&)>;

namespace {

/// Calls `body` on every rank, all of which have a GPU.
void run(int ranks, const NcclOptions& options, const Body& body) {
  const auto with_nccl = [&](Communicator& control) { run_with_nccl(control, options, body); };
  const std::chrono::milliseconds deadline = options.deadline;
#if defined(TESSERA_EMULATED)
  emulation::DeviceOptions devices = emulation::device_options();
  devices.devices = ranks;
  const emulation::DeviceOptionsGuard guard(devices);
#else
  ranks = std::min(ranks, cuda::device_count());
#endif
  run_ranks({.ranks = ranks, .device = test::device(), .threads = 1, .deadline = deadline},
            with_nccl);
}

void expect(const NcclOptions& options, int ranks, void (*check)(Communicator&, Findings&)) {
  Findings findings;
  run(ranks, options, [&](Communicator& world) { check(world, findings); });
  CHECK(findings.wrong() == std::vector<std::string>{});
}

constexpr NcclOptions kDeterministic = {.deterministic = true,
                                        .deadline = std::chrono::seconds(60)};

/// Sums as near to the exact one as additions in any order can promise, in f32 and bf16.
void check_any_order(Communicator& group, Findings& findings) {
  constexpr std::int64_t kPart = 50;
  const int n = group.size();
  const auto near = [&](const Floats& sums, std::int64_t first, double roundoff) {
    std::vector<double> exact(sums.size(), 0.0), magnitude(sums.size(), 0.0);
    for (int r = 0; r < n; ++r) {
      const Floats values = test::values_of(r, n * kPart);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const double value = values[static_cast<std::size_t>(first) + i];
        exact[i] += value;
        magnitude[i] += std::abs(value);
      }
    }
    bool all = true;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      all &= std::abs(sums[i] - exact[i]) <= n * roundoff * magnitude[i];
    }
    return all;
  };
  const Tensor whole = tensor_of(group.rank(), n * kPart);
  const Tensor part = Tensor::empty({kPart}, DType::f32);
  group.reduce_scatter({part}, {whole}, compute());
  findings.expect(near(part.to_vector<float>(), group.rank() * kPart, 0x1p-23), "reduce_scatter");
  const Tensor own = whole.slice(group.rank() * kPart, (group.rank() + 1) * kPart);
  group.reduce_scatter({own}, {whole}, compute());
  findings.expect(own.to_vector<float>() == part.to_vector<float>(), "in place");
  const Tensor everywhere = tensor_of(group.rank(), n * kPart);
  group.all_reduce({everywhere}, compute());
  findings.expect(near(everywhere.to_vector<float>(), 0, 0x1p-23), "all_reduce");
  const Tensor at_root = tensor_of(group.rank(), n * kPart);
  group.reduce({at_root}, n - 1, compute());
  if (group.rank() == n - 1)
    findings.expect(near(at_root.to_vector<float>(), 0, 0x1p-23), "reduce");

  std::vector<bfloat16> narrow;
  for (const float value : test::values_of(group.rank(), kPart)) narrow.emplace_back(value);
  const Tensor sixteen = Tensor::from(narrow, {kPart});
  group.all_reduce({sixteen}, compute());
  Floats sums;
  for (const bfloat16 value : sixteen.to_vector<bfloat16>()) {
    sums.push_back(static_cast<float>(value));
  }
  findings.expect(near(sums, 0, 0x1p-7), "all_reduce of bf16");
}

/// What NCCL's own reductions would get wrong.
void check_in_tree_anyway(Communicator& group, Findings& findings) {
  const bool last = group.rank() == group.size() - 1;
  const Tensor x = Tensor::from(Floats{last ? std::nanf("") : 1.0f, 2.0f}, {2});
  group.all_reduce({x}, compute(), "largest", Reduction::maximum);
  findings.expect(std::isnan(x.to_vector<float>()[0]) && x.to_vector<float>()[1] == 2.0f, "NaN");
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  const Tensor integer = Tensor::from(std::vector<std::int64_t>{large}, {1});
  group.all_reduce({integer}, compute());
  findings.expect(integer.item<std::int64_t>() == group.size() * large, "integers");
  // In bf16 256 + 1 is 256 again.
  const std::vector<bfloat16> values(static_cast<std::size_t>(group.size()),
                                     bfloat16(group.rank() == 0 ? 256.0f : 1.0f));
  const Tensor wide = Tensor::zeros({1}, DType::f32);
  group.reduce_scatter({wide}, {Tensor::from(values, {group.size()})}, compute());
  findings.expect(wide.item<float>() == 255.0f + static_cast<float>(group.size()), "bf16 into f32");
}

}  // namespace

TEST_CASE("nccl: with deterministic sums it does all that every communicator must, bit for bit") {
  for (const test::CommunicatorCheck& check : test::kCommunicatorChecks) {
    INFO(check.name);
    for (const int ranks : {1, 2, 3}) expect(kDeterministic, ranks, check.body);
  }
}

TEST_CASE("nccl: calls drawn at random, whenever GPUs get to them, in many small rounds") {
  NcclOptions options = kDeterministic;
  options.staging_bytes = 2048;
  test::for_every_progress(1, [&] { expect(options, 3, test::check_random_calls); });
}

TEST_CASE(
    "nccl: its own sums are right to rounding, and what it cannot sum goes through the tree") {
  for (const int ranks : {2, 4}) {
    expect({}, ranks, check_any_order);
    expect({}, ranks, check_in_tree_anyway);
    expect({}, ranks, test::check_moves);
    expect({}, ranks, test::check_all_gather);
  }
}

#if defined(TESSERA_EMULATED)
TEST_CASE("nccl: it is left to its own sums unless they are to be deterministic") {
  Findings findings;  // the stand-in adds in no tree
  run(4, {}, [&](Communicator& world) { test::check_sums(world, findings); });
  CHECK_FALSE(findings.wrong().empty());
}
#endif

TEST_CASE("nccl: a rank that raises ends the others, and the first failure is told") {
  REQUIRE_THROWS_WITH(run(3, kDeterministic,
                          [](Communicator& group) {
                            if (group.rank() == 1) throw Error("out of patience");
                            group.barrier(compute());
                          }),
                      "rank 1: out of patience");
}

TEST_CASE("nccl: ranks that disagree are both named") {
  REQUIRE_THROWS_WITH(run(3, kDeterministic,
                          [](Communicator& group) {
                            const Tensor x = tensor_of(0, group.rank() == 2 ? 8 : 4);
                            group.all_reduce({x}, compute(), "h.0");
                          }),
                      Catch::Contains("all_reduce of 16 bytes in 1 tensor, for h.0, rank 2 makes"));
}

TEST_CASE("nccl: a rank that does not come is named when the deadline has passed") {
  REQUIRE_THROWS_WITH(run(3, {.deadline = std::chrono::milliseconds(300)},
                          [](Communicator& group) {
                            if (group.rank() == 1) {
                              std::this_thread::sleep_for(std::chrono::milliseconds(900));
                            }
                            group.barrier(compute());
                          }),
                      Catch::Contains("waited 300 ms") && Catch::Contains("for rank 1"));
}

TEST_CASE("nccl: two ranks on one GPU are told that NCCL does not allow it") {
  const auto with_nccl = [](Communicator& control) {
    run_with_nccl(control, {}, [](Communicator&) {});
  };
  REQUIRE_THROWS_WITH(run_ranks({.ranks = 2, .device = test::device(), .threads = 1}, with_nccl),
                      Catch::Contains("NCCL: connecting"));
}

TEST_CASE("run_world takes the communicator that is asked for, where it can") {
  const auto kinds = [](CommunicatorKind kind, const Device& device) {
    std::string trace;
    run_world({.ranks = 1, .device = device, .threads = 1, .communicator = kind},
              [&](Communicator& world) {
                const Tensor x = tensor_of(0, 3);
                world.all_reduce({x}, compute());
                trace = x.to_vector<float>() == test::values_of(0, 3) ? "ran" : "wrong";
              });
    return trace;
  };
  CHECK(kinds(CommunicatorKind::nccl, test::device()) == "ran");
  CHECK(kinds(CommunicatorKind::automatic, test::device()) == "ran");
  CHECK(kinds(CommunicatorKind::threads, test::device()) == "ran");
  CHECK_THROWS_WITH(kinds(CommunicatorKind::mpi, test::device()), Catch::Contains("mpirun -np"));
  CHECK_THROWS_WITH(kinds(CommunicatorKind::nccl, Device{}), Catch::Contains("on GPUs"));
  CHECK(enum_from_name<CommunicatorKind>("nccl") == CommunicatorKind::nccl);
  CHECK(enum_from_name<CommunicatorKind>("auto") == CommunicatorKind::automatic);
  CHECK_THROWS_WITH(enum_from_name<CommunicatorKind>("gloo"),
                    Catch::Contains("auto, threads, mpi or nccl"));
}

}  // namespace tessera
