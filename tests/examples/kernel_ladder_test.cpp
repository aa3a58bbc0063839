// The rungs of the ladders of kernels are right at shapes that fit no tile.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "examples/kernel_ladder/matmul/operands.h"
#include "examples/kernel_ladder/matmul/rungs.h"
#include "runtime/context.h"

namespace tessera::kernel_ladder {
namespace {

// One of everything; less than a tile; whole tiles and one more; more than one block of depth and of
// columns; no whole pair of depths.
constexpr std::array<std::array<std::int64_t, 3>, 5> kShapes = {
    {{1, 1, 1}, {3, 5, 7}, {33, 97, 65}, {67, 131, 300}, {9, 1009, 517}}};

/// A rung overwrites c.
void soil(const Tensor& c) {
  std::fill_n(c.data<float>(), c.numel(), 99.0f);
}

void check_matmul(int threads) {
  RankContext rank({.device = {DeviceType::cpu, 0}, .threads = threads});
  const ContextGuard guard(rank);
  for (const auto& [M, N, K] : kShapes) {
    const Operands f32(M, N, K, DType::f32), bf16(M, N, K, DType::bf16);
    std::vector<float> first;
    for (const MatmulRung& rung : kMatmulRungs) {
      if (!has(rung.isa)) continue;
      soil(f32.c);
      rung.run(f32.product<float>());
      INFO(fmt::format("{}: [{}, {}] x [{}, {}], {} threads", rung.name, M, K, K, N, threads));
      CHECK(largest_error(f32) <= static_cast<double>(K));
      if (first.empty()) first = f32.c.to_vector<float>();
      CHECK(f32.c.to_vector<float>() == first);
    }
    if (!has(cpu::Isa::amx)) continue;
    soil(bf16.c);
    amx(bf16.product<bfloat16>());
    INFO(fmt::format("amx: [{}, {}] x [{}, {}], {} threads", M, K, K, N, threads));
    CHECK(largest_error(bf16) <= static_cast<double>(K));
  }
}

TEST_CASE("every rung of the ladder of products computes c = a b with the bits of three loops",
          "[cpu]") {
  check_matmul(1);
  check_matmul(3);
}

}  // namespace
}  // namespace tessera::kernel_ladder
