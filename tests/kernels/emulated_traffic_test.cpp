// The bytes of kernels are those of their formulas. Regressions in traffic show without a GPU.
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "kernels/rms_norm/op.h"
#include "kernels/swiglu/op.h"
#include "runtime/emulation/device/emulator.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

/// The launches of `work`, added up.
emulation::LaunchRecord launches_of(const std::function<void()>& work) {
  context().compute_stream().synchronize();
  emulation::start_launch_list();
  work();
  context().compute_stream().synchronize();
  emulation::LaunchRecord sum;
  for (emulation::LaunchRecord& launch : emulation::take_launch_list()) {
    ++sum.blocks;
    for (const emulation::Counter& counter : emulation::counters()) {
      counter.of(sum.work) += counter.of(launch.work);
    }
  }
  return sum;
}

/// The launches ask for exactly these bytes, in whole sectors, each once.
void require_traffic(const emulation::LaunchRecord& launches, std::uint64_t reads,
                     std::uint64_t writes) {
  REQUIRE(launches.work.reads.bytes == reads);
  REQUIRE(launches.work.writes.bytes == writes);
  REQUIRE(32 * launches.work.reads.sectors == reads);
  REQUIRE(32 * launches.work.writes.sectors == writes);
  REQUIRE(32 * launches.work.reads.distinct == reads);
  REQUIRE(32 * launches.work.writes.distinct == writes);
}

}  // namespace

TEST_CASE("traffic: SwiGLU moves 6NF bytes forward and 10NF backward") {
  const test::Rank rank;
  constexpr std::uint64_t N = 6, F = 512;
  const Tensor gate = Tensor::zeros({N, F}, DType::bf16), up = Tensor::zeros({N, F}, DType::bf16);
  const Tensor dy = Tensor::zeros({N, F}, DType::bf16), y = Tensor::zeros({N, F}, DType::bf16);
  const auto forward = launches_of([&] { swiglu_forward(y, all_columns(gate), all_columns(up)); });
  REQUIRE(forward.blocks == 1);
  require_traffic(forward, 4 * N * F, 2 * N * F);
  const auto backward = launches_of([&] {
    swiglu_backward(all_columns(gate), all_columns(up), dy, all_columns(gate), all_columns(up));
  });
  REQUIRE(backward.blocks == 1);
  require_traffic(backward, 6 * N * F, 4 * N * F);
}

// Next to rows, the weight once per row and rstd once per row. A row's rstd is a sector of its own.
TEST_CASE("traffic: RMSNorm with a residual moves 8NC bytes forward") {
  const test::Rank rank;
  constexpr std::uint64_t N = 8, C = 768;
  const Tensor x = Tensor::zeros({N, C}, DType::bf16),
               residual = Tensor::zeros({N, C}, DType::bf16);
  const Tensor weight = Tensor::zeros({C}, DType::bf16), y = Tensor::zeros({N, C}, DType::bf16);
  const Tensor rstd = Tensor::zeros({N}, DType::f32);
  const auto forward =
      launches_of([&] { add_rms_norm_forward(y, x, rstd, x, residual, weight, 1e-5f); });
  REQUIRE(forward.blocks == 1);
  REQUIRE(forward.work.reads.bytes == 4 * N * C + 2 * N * C);
  REQUIRE(32 * forward.work.reads.distinct == 4 * N * C + 2 * C);
  REQUIRE(forward.work.writes.bytes == 4 * N * C + 4 * N);
  REQUIRE(32 * forward.work.writes.distinct == 4 * N * C + 4 * N);
  REQUIRE(forward.work.bank_conflicts == 0);
}

}  // namespace tessera
