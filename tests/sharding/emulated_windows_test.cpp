// Buffers of NCCL that all ranks have registered: gathers by copy engines, and sums that read them.
#include <barrier>
#include <catch2/catch.hpp>
#include <string>

#include "kernels/matmul/op.h"
#include "runtime/cuda/graph.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "runtime/emulation/toolkit/host_calls.h"
#include "runtime/emulation/toolkit/nccl_faults.h"
#include "runtime/emulation/toolkit/nccl_model.h"
#include "tests/sharding/nccl_ranks.h"
#include "tests/sharding/toy_run.h"

namespace tessera {

using test::compute;
using test::Findings;
using test::Floats;
using test::kSafetyLimit;
using test::run_nccl;
using test::ToyRun;
using test::Trained;
using test::values_of;

namespace {

constexpr int kRanks = 4;
const NcclOptions kWindows = {.deterministic = true, .deadline = kSafetyLimit, .windows = true};
const NcclOptions kStaged = {.deterministic = true, .deadline = kSafetyLimit};

/// Calls of all ranks together, in a step that no rank begins before the others or leaves early.
class CountedStep {
 public:
  explicit CountedStep(int ranks) : start_(ranks), end_(ranks) {}

  emulation::HostCalls count(const std::function<void()>& step) {
    compute().synchronize();
    start_.arrive_and_wait();
    const emulation::HostCalls before = emulation::host_calls_by_kind();
    start_.arrive_and_wait();
    step();
    end_.arrive_and_wait();
    const emulation::HostCalls after = emulation::host_calls_by_kind();
    end_.arrive_and_wait();
    return {.launches = after.launches - before.launches,
            .collectives = after.collectives - before.collectives};
  }

 private:
  std::barrier<> start_, end_;
};

/// This rank's values, in a buffer of the communicator.
Tensor filled_buffer(Communicator& world, std::int64_t count) {
  const CategoryScope category(Category::communication);
  const Tensor buffer = world.buffer(count, DType::f32);
  buffer.copy_from(test::tensor_of(world.rank(), count));
  return buffer;
}

Floats part_of(const Floats& all, int rank, int ranks) {
  const ElementRange range = share_of(static_cast<std::int64_t>(all.size()), rank, ranks);
  return {all.begin() + range.begin, all.begin() + range.end};
}

void expect_on_ranks(int ranks, const NcclOptions& options,
                     const std::function<void(Communicator&, Findings&)>& body) {
  Findings findings;
  run_nccl(ranks, options, [&](Communicator& world) { body(world, findings); });
  CHECK(findings.wrong() == std::vector<std::string>{});
}

/// Sums of every collective, right after which the rank overwrites its sources.
void check_overwritten_sums(Communicator& world, Findings& findings) {
  const int n = world.size(), r = world.rank();
  const std::int64_t count = 96 * n;
  const Floats sums = test::summed(n, count);
  const auto overwrite = [](const Tensor& x) { x.copy_from(test::tensor_of(99, x.numel())); };

  const Tensor scattered = filled_buffer(world, count);
  const Tensor part = Tensor::empty({count / n}, DType::f32);
  world.reduce_scatter({part}, {scattered}, compute());
  overwrite(scattered);
  findings.expect(part.to_vector<float>() == part_of(sums, r, n), "reduce_scatter");

  const Tensor in_place = filled_buffer(world, count);
  const Tensor own = share_of(in_place, r, n);
  world.reduce_scatter({own}, {in_place}, compute());
  const Tensor kept = own.clone();
  overwrite(in_place);
  findings.expect(kept.to_vector<float>() == part_of(sums, r, n), "reduce_scatter in place");

  for (const std::int64_t length : {count, count - 1, std::int64_t{n - 1}}) {
    const Tensor everywhere = filled_buffer(world, length);
    world.all_reduce({everywhere}, compute());
    const Tensor all = everywhere.clone();
    overwrite(everywhere);
    findings.expect(all.to_vector<float>() == test::summed(n, length),
                    fmt::format("all_reduce of {}", length));
    const Tensor at_root = filled_buffer(world, length);
    world.reduce({at_root}, n - 1, compute());
    const Tensor reduced = at_root.clone();
    overwrite(at_root);
    if (r == n - 1) {
      findings.expect(reduced.to_vector<float>() == test::summed(n, length),
                      fmt::format("reduce of {}", length));
    }
  }
}

}  // namespace

TEST_CASE("windows: sums have the bits of the tree, also where sources are overwritten at once") {
  for (const int ranks : {1, 2, 4}) expect_on_ranks(ranks, kWindows, check_overwritten_sums);
  test::for_every_progress(1, [&] { expect_on_ranks(3, kWindows, check_overwritten_sums); });
}

TEST_CASE("windows: a sum is two barriers and a kernel for each tensor, without messages") {
  CountedStep step(kRanks);
  expect_on_ranks(kRanks, kWindows, [&](Communicator& world, Findings& findings) {
    const Tensor x = filled_buffer(world, 64), y = filled_buffer(world, 128);
    const Tensors parts = {share_of(x, world.rank(), kRanks), share_of(y, world.rank(), kRanks)};
    const test::SentSince sent(world);
    const auto calls = step.count([&] { world.reduce_scatter(parts, {x, y}, compute()); });
    findings.expect(calls.collectives == 2 * kRanks, "reduce_scatter: two barriers");
    findings.expect(calls.launches == 2 * kRanks, "reduce_scatter: a kernel for each tensor");
    findings.expect(sent.of(Collective::reduce_scatter) == (kRanks - 1) * (16 + 32) * 4, "bytes");
    const auto all = step.count([&] { world.all_reduce({x, y}, compute()); });
    findings.expect(all.collectives == 3 * kRanks, "all_reduce: a barrier and two gathers");
    findings.expect(all.launches == 2 * kRanks, "all_reduce: a kernel for each tensor");
    findings.expect(context().allocator().account()[Category::workspace].peak < 512,
                    "no memory for sources");
  });
}

TEST_CASE("windows: ranks out of reach exchange messages, and have the same sums") {
  for (const int reach : {2, -1}) {
    CAPTURE(reach);
    const emulation::NcclModelGuard model({.lsa_ranks = reach});
    CountedStep step(kRanks);
    expect_on_ranks(kRanks, kWindows, [&](Communicator& world, Findings& findings) {
      check_overwritten_sums(world, findings);
      const Tensor x = filled_buffer(world, 64);
      const Tensor part = share_of(x, world.rank(), kRanks);
      const auto calls = step.count([&] { world.reduce_scatter({part}, {x}, compute()); });
      findings.expect(calls.collectives == 2 * kRanks * (kRanks - 1), "messages");
    });
  }
}

TEST_CASE("windows: a tensor that is no buffer of the communicator travels as before") {
  expect_on_ranks(kRanks, kWindows, [](Communicator& world, Findings& findings) {
    const auto half = world.split(world.rank() / 2);
    const Tensor of_world = filled_buffer(world, 64), of_none = test::tensor_of(world.rank(), 64);
    const Tensor of_half = half->buffer(64, DType::f32);
    of_half.copy_from(of_none);
    const int first = world.rank() / 2 * 2;
    Floats sums;
    for (std::size_t i = 0; i < 64; ++i) {
      sums.push_back(values_of(first, 64)[i] + values_of(first + 1, 64)[i]);
    }
    for (const Tensor& x : {of_world, of_none, of_half}) {
      half->all_reduce({x}, compute());
      findings.expect(x.to_vector<float>() == sums, "half");
    }
  });
}

TEST_CASE("windows: a captured sum and gather read the ranks' memory at every launch") {
  test::for_every_progress(1, [] {
    expect_on_ranks(kRanks, kWindows, [](Communicator& world, Findings& findings) {
      constexpr std::int64_t kCount = 64;
      const Tensor x = filled_buffer(world, kCount), sums = filled_buffer(world, kCount);
      const Tensor part = Tensor::empty({kCount / kRanks}, DType::f32);
      cuda::Graph graph({}, [&] {
        world.reduce_scatter({part}, {x}, compute());
        share_of(sums, world.rank(), kRanks).copy_from(part);
        world.all_gather({sums}, compute());
      });
      Floats values = values_of(world.rank(), kCount), expected = test::summed(kRanks, kCount);
      for (int launch = 0; launch < 3; ++launch) {
        x.copy_from(Tensor::from(values, {kCount}));
        graph.launch();
        findings.expect(sums.to_vector<float>() == expected, fmt::format("launch {}", launch));
        for (float& value : values) value *= 2;  // exact, in every sum
        for (float& sum : expected) sum *= 2;
      }
    });
  });
}

TEST_CASE("windows: a gather into a buffer holds no multiprocessor") {
  const auto crowded = [](bool windows) {
    emulation::DeviceOptions devices = test::with_gpus(2);
    devices.progress = emulation::Progress::lazy;
    const emulation::DeviceOptionsGuard guard(devices);
    const emulation::NcclModelGuard model({.multiprocessors = 2});
    const std::uint64_t before = emulation::crowded_products();
    NcclOptions options = windows ? kWindows : kStaged;
    test::TestClock clock;  // no time passes: NCCL's watcher asks for no progress
    options.deadline = {kSafetyLimit, clock};
    expect_on_ranks(2, options, [](Communicator& world, Findings& findings) {
      const Stream& side = context().side_stream("side");
      const Tensor x = filled_buffer(world, 64), a = test::tensor_of(0, 1024).reshape({32, 32}),
                   c = Tensor::empty({32, 32}, DType::f32);
      compute().synchronize();
      side.wait(compute().record());
      world.all_gather({x}, side);
      matmul(c, a, a);
      compute().synchronize();
      side.synchronize();
      for (int r = 0; r < 2; ++r) {
        findings.expect(share_of(x, r, 2).to_vector<float>() == part_of(values_of(r, 64), r, 2),
                        "gathered");
      }
    });
    return emulation::crowded_products() - before;
  };
  CHECK(crowded(false) > 0);
  CHECK(crowded(true) == 0);
}

TEST_CASE("windows: a buffer is charged, and its memory is freed before the next ones need it") {
  emulation::DeviceOptions devices = test::with_gpus(2);
  devices.memory_bytes = std::size_t{32} << 20;
  const emulation::DeviceOptionsGuard guard(devices);
  const std::string before = emulation::leaks();
  Findings findings;
  const auto body = [&](Communicator& world) {
    const auto charged = [] {
      return context().allocator().account()[Category::gradients].current;
    };
    const CategoryScope category(Category::gradients);
    Tensor last;
    for (int i = 0; i < 20; ++i) {
      const Tensor x = world.buffer(1 << 20, DType::f32);
      findings.expect(charged() == (4 << 20) + (i > 0 ? 4 << 10 : 0), "charged");
      findings.expect(
          x.device() == context().device() && x.slice(0, 9).to_vector<float>() == Floats(9),
          "zeros");
      last = world.buffer(1 << 10, DType::f32);
    }
    findings.expect(charged() == 4 << 10, "released");
  };
  run_ranks(
      {.ranks = 2, .device = test::device(), .threads = 1, .communicator = CommunicatorKind::nccl},
      [&](Communicator& control) { run_with_nccl(control, kWindows, body); });
  CHECK(findings.wrong() == std::vector<std::string>{});
  CHECK(emulation::leaks() == before);
}

TEST_CASE("windows: a rank without memory for a buffer ends the run") {
  emulation::DeviceOptions devices = test::with_gpus(2);
  devices.memory_bytes = std::size_t{16} << 20;
  const emulation::DeviceOptionsGuard guard(devices);
  const std::string before = emulation::leaks();
  const auto body = [](Communicator& world) {
    const Tensor first = world.buffer(1 << 10, DType::f32);
    const Tensor more = Tensor::empty({world.rank() == 1 ? 12 << 20 : 1}, DType::u8);
    world.buffer(1 << 20, DType::f32);
  };
  CHECK_THROWS_WITH(
      run_ranks({.ranks = 2,
                 .device = test::device(),
                 .threads = 1,
                 .communicator = CommunicatorKind::nccl},
                [&](Communicator& control) { run_with_nccl(control, kWindows, body); }),
      Catch::StartsWith("rank 1: no 4194304 bytes of memory for a window of NCCL"));
  CHECK(emulation::leaks() == before);
}

TEST_CASE("windows: ranks that ask for different buffers get an error that names both") {
  CHECK_THROWS_WITH(
      run_nccl(2, kWindows,
               [](Communicator& world) { world.buffer(4 + world.rank(), DType::f32); }),
      Catch::Contains("a buffer of 16 bytes") && Catch::Contains("a buffer of 20 bytes"));
}

TEST_CASE("windows: a rank that fails or aborts ends the run, and no memory stays behind") {
  const std::string before = emulation::leaks();
  for (const bool hangs : {false, true}) {
    CAPTURE(hangs);
    const emulation::NcclFaultsGuard guard({});
    const auto body = [&](Communicator& world) {
      const Tensor x = filled_buffer(world, 64);
      world.all_reduce({x}, compute());
      if (hangs) emulation::set_nccl_faults({.never_ends = true});
      const Tensor y = x.clone();
      if (world.rank() == 1) throw Error("the disk is full");
      world.all_reduce({x}, compute());
      x.to_vector<float>();
      world.raise_if_aborted();
    };
    CHECK_THROWS_WITH(run_nccl(2, kWindows, body), Catch::Contains("the disk is full"));
    CHECK(emulation::leaks() == before);
  }
}

TEST_CASE("windows: gathered and reduced buffers are windows, and go with their strategy") {
  std::barrier made(kRanks);
  for (const StrategyKind kind : test::kSeveralRanks) {
    for (const DType reduce_dtype : {DType::f32, DType::bf16}) {
      CAPTURE(name_of(kind));
      expect_on_ranks(kRanks, kWindows, [&](Communicator& world, Findings& findings) {
        test::ToyNet net;
        auto strategy =
            make_strategy(net.units, {.strategy = kind, .reduce_dtype = reduce_dtype}, 3, &world);
        int count = 0, planned = 0;
        for (const GroupPlan& group : strategy->plan().groups) {
          const bool gathers = kind != StrategyKind::ddp, slots = kind >= StrategyKind::zero3;
          if (gathers) count += slots ? group.gather_slots.count : group.bucket_count();
          count += reduce_dtype == DType::f32 ? group.gradient_slots.count : 1;
          planned += group.collective_buffers();
        }
        findings.expect(planned == count, "the plan's number");
        made.arrive_and_wait();
        findings.expect(emulation::registered_windows() == static_cast<std::size_t>(kRanks * count),
                        fmt::format("{} windows", count));
        made.arrive_and_wait();
        strategy.reset();
        context().side_stream("communication").synchronize();  // it holds the tensors of its calls
        world.buffer(1, DType::f32);
        made.arrive_and_wait();
        findings.expect(emulation::registered_windows() == kRanks, "the last window");
        made.arrive_and_wait();
      });
    }
  }
}

TEST_CASE("windows: all strategies have the bits, bytes and memory that they have without") {
  const auto train = [](const NcclOptions& nccl, const ToyRun& run,
                        const ShardingOptions& options) {
    Trained trained;
    expect_on_ranks(run.ranks, nccl, [&](Communicator& world, Findings& findings) {
      const Trained mine = test::train_rank(world, run, options, findings);
      if (world.rank() == 0) trained = mine;
    });
    return trained;
  };
  const ToyRun run = {.ranks = kRanks, .layers = 2, .steps = 2};
  Findings findings;
  const Trained threads = test::train(run, {.strategy = StrategyKind::ddp}, findings);
  for (const StrategyKind kind : test::kSeveralRanks) {
    for (const bool flat : {false, true}) {
      if (flat && kind < StrategyKind::fsdp) continue;
      CAPTURE(name_of(kind), flat);
      ShardingOptions options = {.strategy = kind, .flatten_parameters = flat};
      CHECK(train(kWindows, run, options) == threads);
      if (kind == StrategyKind::zero2) continue;  // messages as zero1
      NcclOptions any_order = kWindows;
      any_order.deterministic = false;
      const Trained in_windows = train(any_order, run, options);
      any_order.windows = false;
      CHECK(in_windows == train(any_order, run, options));
      if (flat) continue;
      options.reduce_dtype = DType::bf16;
      CHECK(train(kWindows, run, options) == train(kStaged, run, options));
    }
  }
}

}  // namespace tessera
