// The rungs of the ladders of kernels are right at shapes that fit no tile.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "examples/kernel_ladder/attention/operands.h"
#include "examples/kernel_ladder/matmul/operands.h"
#include "examples/kernel_ladder/matmul/rungs.h"
#include "examples/kernel_ladder/norm/operands.h"
#include "examples/kernel_ladder/softmax/operands.h"
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

TEST_CASE("no bound holds for the error of a result that is NaN", "[cpu]") {
  RankContext rank({.device = {DeviceType::cpu, 0}, .threads = 1});
  const ContextGuard guard(rank);
  for (const std::int64_t place : {0, 1, 3}) {
    const Operands operands(2, 2, 3, DType::f32);
    three_loops(operands.product<float>());
    operands.c.data<float>()[place] = std::nanf("");
    CHECK_FALSE(largest_error(operands) <= 1e30);
  }
}

/// Calls run() on 1 and on 3 threads.
template <typename Run>
void on_teams(const Run& run) {
  for (const int threads : {1, 3}) {
    RankContext rank({.device = {DeviceType::cpu, 0}, .threads = threads});
    const ContextGuard guard(rank);
    INFO(threads << " threads");
    run();
  }
}

/// The elements of `result` after a rung.
template <typename Run, typename Operands>
std::vector<float> results(const Run& run, const Operands& operands, const Tensor& result) {
  soil(result);
  run(operands.problem());
  return result.to_vector<float>();
}

// Rows: one of everything; less than a vector; whole vectors and one more; more rows than a thread
// takes at a time; more columns than a block has.
constexpr std::array<std::array<std::int64_t, 2>, 6> kRowShapes = {
    {{1, 1}, {3, 5}, {2, 33}, {131, 40}, {1, 513}, {3, 1500}}};

TEST_CASE("every rung of the ladder of norms errs by no more than its roundings explain", "[cpu]") {
  on_teams([] {
    for (const auto& [N, C] : kRowShapes) {
      const norm::Operands o(N, C);
      for (const Rung<norm::Norm>& rung : norm::kRungs) {
        if (!has(rung.isa)) continue;
        soil(o.y), soil(o.rstd);
        rung.run(o.problem());
        INFO(fmt::format("{}: [{}, {}]", rung.name, N, C));
        CHECK(largest_error(o.problem()) <= most_error(o.problem()));
      }
    }
  });
}

TEST_CASE("threads change no bit of a rung, and neither do tiles that are not visited", "[cpu]") {
  on_teams([] {
    const norm::Operands rows(131, 40);
    CHECK(results(norm::vector_sums, rows, rows.y) == results(norm::threads, rows, rows.y));
    const softmax::Operands logits(5, 1500);
    const attention::Operands heads(3, 150, 20, 40.0f);
    CHECK(results(attention::tiles, heads, heads.o) == results(attention::causal, heads, heads.o));
    if (!has(cpu::Isa::avx512)) return;
    CHECK(results(softmax::avx512, logits, logits.loss) ==
          results(softmax::threads, logits, logits.loss));
    CHECK(results(attention::avx512, heads, heads.o) ==
          results(attention::threads, heads, heads.o));
  });
}

TEST_CASE("every rung of the ladder of softmaxes errs by no more than its roundings explain",
          "[cpu]") {
  on_teams([] {
    for (const auto& [N, C] : kRowShapes) {
      const softmax::Operands o(N, C);
      for (const softmax::SoftmaxRung& rung : softmax::kRungs) {
        if (!has(rung.isa)) continue;
        soil(o.y), soil(o.loss);
        rung.run(o.problem());
        INFO(fmt::format("{}: [{}, {}]", rung.name, N, C));
        CHECK(largest_error(o.problem(), rung.writes_y) <= most_error(o.problem()));
        CHECK(rung.writes_y == (o.y.to_vector<float>()[0] != 99.0f));
      }
    }
  });
}

// Heads, tokens and channels: one token; less than a tile; whole tiles and one more; a last tile of
// few queries, channels that are no whole vector.
constexpr std::array<std::array<std::int64_t, 3>, 4> kHeadShapes = {
    {{1, 1, 1}, {2, 37, 8}, {1, 129, 16}, {3, 150, 20}}};

TEST_CASE("every rung of the ladder of attention errs by no more than its roundings explain",
          "[cpu]") {
  on_teams([] {
    for (const auto& [H, T, D] : kHeadShapes) {
      const attention::Operands o(H, T, D, 40.0f);
      for (const Rung<attention::Attention>& rung : attention::kRungs) {
        if (!has(rung.isa)) continue;
        soil(o.o);
        rung.run(o.problem());
        INFO(fmt::format("{}: {} heads of [{}, {}]", rung.name, H, T, D));
        CHECK(largest_error(o.problem()) <= most_error(o.problem()));
      }
    }
  });
}

}  // namespace
}  // namespace tessera::kernel_ladder
