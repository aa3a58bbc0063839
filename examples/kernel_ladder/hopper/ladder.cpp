// The ladder of products on Hopper. A rung's share is that of the last line, cuBLASLt's product.
#include "examples/kernel_ladder/ladder.h"

#include <fmt/format.h>

#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/matmul/operands.h"
#include "examples/kernel_ladder/table.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/matmul/op.h"
#include "runtime/check.h"

namespace tessera::kernel_ladder {
namespace {

std::vector<Rung<Product<bfloat16>>> rungs() {
  check(gpu::has_hopper(), "--op hopper needs a GPU of compute capability 9.0");
  std::vector<Rung<Product<bfloat16>>> all = {matmul::kTensorCores};
  all.insert(all.end(), std::begin(hopper::kRungs), std::end(hopper::kRungs));
  return all;
}

void time_rungs(const std::vector<std::int64_t>& shape, int runs) {
  const std::int64_t M = shape[0], N = shape[1], K = shape[2];
  check(N % 8 == 0 && K % 8 == 0, "--shape {},{},{}: N and K must be multiples of 8", M, N, K);
  const Operands operands(M, N, K, DType::bf16);
  const std::string library = "cuBLASLt";
  std::vector<Line> lines;
  for (const auto& rung : rungs()) {
    const auto run = [&operands, rung] { rung.run(operands.product<bfloat16>()); };
    lines.push_back({.name = rung.name, .run = run, .ceiling_name = library});
  }
  const auto product = [&] { tessera::matmul(operands.c, operands.a, operands.b); };
  lines.push_back({.name = library, .run = product, .ceiling_name = library});
  fmt::print("[{}, {}] x [{}, {}]\n", M, K, K, N);
  print_table(lines, 2.0 * static_cast<double>(M * N * K), "GFLOP/s", runs);
}

/// Prints each rung's largest error, and whether it has the first wgmma rung's bits.
void check_rungs() {
  constexpr std::int64_t M = 300, N = 520, K = 200;
  fmt::print("[{}, {}] x [{}, {}]    error   bits of warpgroups\n", M, K, K, N);
  const Operands operands(M, N, K, DType::bf16);
  const auto a = operands.a.to_vector<bfloat16>(), b = operands.b.to_vector<bfloat16>();
  std::vector<float> first;
  for (const auto& rung : rungs()) {
    rung.run(operands.product<bfloat16>());
    auto c = operands.c.to_vector<float>();
    if (rung.run == hopper::warpgroups) first = c;
    fmt::print("{:<22} {:>9.1f}   {}\n", rung.name,
               largest_error({M, N, K, a.data(), b.data(), c.data(), nullptr}),
               c == first ? "yes" : "no");
  }
}

}  // namespace

Ladder hopper_ladder() {
  return {"hopper",           "M,N,K of c [M, N] = a [M, K] b [K, N]",
          {4096, 4096, 4096}, time_rungs,
          check_rungs,        DeviceType::cuda};
}

}  // namespace tessera::kernel_ladder
