// The ladder of matrix products. Its last lines are the library's product and OpenBLAS's, on all
// threads as the rungs from `threads` on.
#include "examples/kernel_ladder/ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "examples/kernel_ladder/matmul/operands.h"
#include "examples/kernel_ladder/matmul/rungs.h"
#include "examples/kernel_ladder/table.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/openblas_library.h"
#include "runtime/context.h"
#include "tools/measure/matmul_rate.h"
#include "tools/measure/peak.h"

namespace tessera::kernel_ladder {
namespace {

void sgemm(const Operands& o, int threads) {
  const auto size = [](const Tensor& t, int dim) { return static_cast<int>(t.size(dim)); };
  const int M = size(o.c, 0), N = size(o.c, 1), K = size(o.a, 1);
  const OpenBlasThreads own_threading(threads);
  cpu::openblas().sgemm(cpu::kRowMajor, cpu::kPlain, cpu::kPlain, M, N, K, 1.0f, o.a.data<float>(),
                        K, o.b.data<float>(), N, 0.0f, o.c.data<float>(), N);
}

void time_rungs(const std::vector<std::int64_t>& shape, int runs) {
  const std::int64_t M = shape[0], N = shape[1], K = shape[2];
  const Operands f32(M, N, K, DType::f32), bf16(M, N, K, DType::bf16);
  const int threads = context().threads().size();
  const double clock = clock_rate();
  std::vector<Line> lines;
  for (const MatmulRung& rung : kMatmulRungs) {
    lines.push_back(peak_line(rung.name, rung.isa, DType::f32, rung.uses_threads ? threads : 1,
                              clock, [&] { rung.run(f32.product<float>()); }));
  }
  lines.push_back(peak_line("amx", cpu::Isa::amx, DType::bf16, threads, clock,
                            [&] { amx(bf16.product<bfloat16>()); }));
  const cpu::Isa best = cpu::best_isa(), best_f32 = std::min(best, cpu::Isa::avx512);
  lines.push_back(peak_line("tessera, f32", best_f32, DType::f32, threads, clock,
                            [&] { matmul(f32.c, f32.a, f32.b); }));
  lines.push_back(peak_line("OpenBLAS, f32", best_f32, DType::f32, threads, clock,
                            [&] { sgemm(f32, threads); }));
  lines.push_back(peak_line("tessera, bf16", best, DType::bf16, threads, clock,
                            [&] { matmul(bf16.c, bf16.a, bf16.b); }));
  fmt::print("[{}, {}] x [{}, {}], {:.2f} GHz\n", M, K, K, N, 1e-9 * clock);
  print_table(lines, 2.0 * static_cast<double>(M * N * K), "GFLOP/s", runs);
}

/// Prints each rung's largest error, and whether it has the first rung's bits.
void check_rungs() {
  fmt::print("[67, 300] x [300, 131]     error   bits of three_loops\n");
  const Operands f32(67, 131, 300, DType::f32);
  std::vector<float> first;
  for (const MatmulRung& rung : kMatmulRungs) {
    if (!has(rung.isa)) continue;
    rung.run(f32.product<float>());
    if (first.empty()) first = f32.c.to_vector<float>();
    fmt::print("{:<22} {:>9.1f}   {}\n", rung.name, largest_error(f32),
               f32.c.to_vector<float>() == first ? "yes" : "no");
  }
  if (!has(cpu::Isa::amx)) return;
  const Operands bf16(67, 131, 300, DType::bf16);
  amx(bf16.product<bfloat16>());
  fmt::print("{:<22} {:>9.1f}\n", "amx", largest_error(bf16));
}

}  // namespace

Ladder matmul_ladder() {
  return {
      "matmul", "M,N,K of c [M, N] = a [M, K] b [K, N]", {1024, 768, 768}, time_rungs, check_rungs};
}

}  // namespace tessera::kernel_ladder
