// Why a sum changes its bits with the number of ranks, and how fixed parts keep them.
//
// Run build/bin/grid. docs/grid.md walks through it.
#include <fmt/format.h>

#include <cstdint>

#include "examples/kernels/tensors.h"
#include "kernels/matmul/parts.h"
#include "sharding/comm/threads/threads.h"

using namespace tessera;

namespace {

constexpr std::int64_t kDepth = 4096;
constexpr int kGrid = 8;

/// x w, both of kDepth numbers, on ranks that each have some neighbouring depths, in `own_parts` parts.
float product(int ranks, int own_parts) {
  float result = 0;
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    const std::int64_t depth = kDepth / ranks, first = world.rank() * depth;
    const Tensor x = normal({kDepth, 1}, "x").slice(first, first + depth);
    const Tensor w = normal({kDepth, 1}, "w").slice(first, first + depth);
    const Tensor sum = Tensor::empty({1, 1}, DType::f32);
    matmul_in_parts(sum, x, w, Transpose::yes, Transpose::no, equal_depth_parts(depth, own_parts));
    world.all_reduce({sum}, context().compute_stream()).synchronize();
    if (world.rank() == 0) result = sum.item<float>();
  });
  return result;
}

}  // namespace

int main() {
  const float a = 0x1p24f, b = 1, c = 1, d = 1;
  fmt::print("((a + b) + c) + d   {:.0f}\n", ((a + b) + c) + d);
  fmt::print("(a + b) + (c + d)   {:.0f}\n\n", (a + b) + (c + d));
  fmt::print("ranks    a sum each   a grid of {}\n", kGrid);
  for (const int ranks : {1, 2, 4, 8}) {
    fmt::print("{:5} {:13.9g} {:13.9g}\n", ranks, product(ranks, 1), product(ranks, kGrid / ranks));
  }
}
