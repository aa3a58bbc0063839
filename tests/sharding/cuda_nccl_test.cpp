// Results of ranks that talk through NCCL.
#include <catch2/catch.hpp>
#include <cmath>
#include <thread>

#include "sharding/comm/tcp/tcp.h"
#include "tests/sharding/nccl_ranks.h"
#include "tests/sharding/random_calls.h"
#include "tests/support/local_port.h"

namespace tessera {

using test::compute;
using test::Findings;
using test::Floats;
using test::kDeterministic;
using test::run_nccl;
using test::tensor_of;

namespace {

void expect(const NcclOptions& options, int ranks, void (*check)(Communicator&, Findings&),
            int ranks_per_node = 0) {
  Findings findings;
  run_nccl(
      ranks, options, [&](Communicator& world) { check(world, findings); }, ranks_per_node);
  CHECK(findings.wrong() == std::vector<std::string>{});
}

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

/// Sums and maxima that NCCL's own floating-point reductions would get wrong.
void check_exact_ones(Communicator& group, Findings& findings) {
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

TEST_CASE("nccl: with deterministic sums it passes every check, bit for bit") {
  for (const test::CommunicatorCheck& check : test::kCommunicatorChecks) {
    INFO(check.name);
    for (const int ranks : {1, 2, 3}) expect(kDeterministic, ranks, check.body);
  }
}

TEST_CASE("nccl: random calls, in any order of GPUs, in many small rounds") {
  NcclOptions options = kDeterministic;
  options.staging_bytes = 2048;
  test::for_every_progress(1, [&] { expect(options, 3, test::check_random_calls); });
}

TEST_CASE("nccl: sums inside nodes and across them have the bits of one sum over all ranks") {
  for (const auto& [ranks, per_node] : {std::pair{4, 2}, std::pair{6, 2}, std::pair{4, 3}}) {
    CAPTURE(ranks, per_node);
    for (const auto check : {test::check_sums, test::check_odd_counts, test::check_split}) {
      expect(kDeterministic, ranks, check, per_node);
    }
    NcclOptions small = kDeterministic;
    small.staging_bytes = 2048;
    expect(small, ranks, test::check_random_calls, per_node);
  }
}

TEST_CASE("nccl: its own sums are right to rounding, and others go through the tree") {
  for (const int ranks : {2, 4}) {
    expect({}, ranks, check_any_order);
    expect({}, ranks, check_exact_ones);
    expect({}, ranks, test::check_moves);
    expect({}, ranks, test::check_all_gather);
  }
}

#if defined(TESSERA_EMULATED)
TEST_CASE("nccl: ranks without MPI, which find each other by TCP, make every check") {
  constexpr int kRanks = 4;
  const emulation::DeviceOptionsGuard guard(test::with_gpus(kRanks));
  const int port = test::free_port();
  Findings findings;
  const auto rank_of = [&](int rank) {
    const TcpRank own = {
        .host = "localhost", .port = port, .rank = rank, .ranks = kRanks, .rank_on_machine = rank};
    const auto body = [&](Communicator& world) {
      for (const test::CommunicatorCheck& check : test::kCommunicatorChecks) {
        check.body(world, findings);
      }
      test::check_random_calls(world, findings);
      findings.expect(world.rank() == rank && world.ranks_per_node() == kRanks, "place");
    };
    run_tcp_rank(own, {.device = test::device(), .threads = 1},
                 [&](Communicator& control) { run_with_nccl(control, kDeterministic, body); });
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        rank_of(rank);
      } catch (const std::exception& error) {
        findings.expect(false, error.what());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("nccl: it forms its own sums unless they must be deterministic") {
  Findings findings;  // the stand-in adds in no tree
  run_nccl(4, {}, [&](Communicator& world) { test::check_sums(world, findings); });
  CHECK_FALSE(findings.wrong().empty());
}

TEST_CASE("nccl: maxima need no tree, so no sources are collected, and the ranks have no limit") {
  for (const bool deterministic : {false, true}) {
    Findings findings;
    const auto workspace_of = [](Communicator& world, Reduction reduction) {
      const Tensor x = tensor_of(0, 4096);
      context().allocator().reset_peaks();
      world.all_reduce({x}, compute(), "x", reduction);
      return context().allocator().account()[Category::workspace].peak;
    };
    run_nccl(3, {.deterministic = deterministic}, [&](Communicator& world) {
      findings.expect(workspace_of(world, Reduction::maximum) == 0, "maximum");
      findings.expect((workspace_of(world, Reduction::sum) > 0) == deterministic, "sum");
    });
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}
#endif

}  // namespace tessera
