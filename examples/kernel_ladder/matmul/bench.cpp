// bench_matmul_ladder: times the rungs of the ladder of matrix products, or checks them.
//
//   bench_matmul_ladder [--shape 1024,768,768] [--threads 2] [--runs 5]
//   bench_matmul_ladder --check
//
// The last lines are the library's product and OpenBLAS's, on all threads as the rungs from
// `threads` on. The peak is that of the instruction set, on cores with two units for vectors.
#include <cblas.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "examples/kernel_ladder/matmul/operands.h"
#include "examples/kernel_ladder/matmul/rungs.h"
#include "examples/kernel_ladder/table.h"
#include "kernels/matmul/op.h"
#include "runtime/context.h"
#include "sharding/comm/threads/threads.h"
#include "tools/measure/peak.h"
#include "tools/program/command_line.h"

namespace tessera::kernel_ladder {
namespace {

struct Options {
  std::vector<std::int64_t> shape = {1024, 768, 768};
  int threads = 0, runs = 5;
  bool check = false;
};

Line line_of(const std::string& name, cpu::Isa isa, DType dtype, int threads, double clock,
             std::function<void()> run) {
  return {.name = name,
          .run = has(isa) ? std::move(run) : nullptr,
          .ceiling = operations_per_cycle(isa, dtype) * clock * threads,
          .ceiling_name =
              fmt::format("{}, {} thread{}", enum_name(isa), threads, threads == 1 ? "" : "s")};
}

void sgemm(const Operands& o, int threads) {
  const auto size = [](const Tensor& t, int dim) { return static_cast<int>(t.size(dim)); };
  const int M = size(o.c, 0), N = size(o.c, 1), K = size(o.a, 1);
  openblas_set_num_threads(threads);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, N, K, 1.0f, o.a.data<float>(), K,
              o.b.data<float>(), N, 0.0f, o.c.data<float>(), N);
  openblas_set_num_threads(1);
}

void time_rungs(const Options& options) {
  const std::int64_t M = options.shape[0], N = options.shape[1], K = options.shape[2];
  const Operands f32(M, N, K, DType::f32), bf16(M, N, K, DType::bf16);
  const int threads = context().threads().size();
  const double clock = clock_rate();
  std::vector<Line> lines;
  for (const MatmulRung& rung : kMatmulRungs) {
    lines.push_back(line_of(rung.name, rung.isa, DType::f32, rung.uses_threads ? threads : 1, clock,
                            [&] { rung.run(f32.product<float>()); }));
  }
  lines.push_back(line_of("amx", cpu::Isa::amx, DType::bf16, threads, clock,
                          [&] { amx(bf16.product<bfloat16>()); }));
  const cpu::Isa best = cpu::best_isa(), best_f32 = std::min(best, cpu::Isa::avx512);
  lines.push_back(line_of("tessera, f32", best_f32, DType::f32, threads, clock,
                          [&] { matmul(f32.c, f32.a, f32.b); }));
  lines.push_back(
      line_of("OpenBLAS, f32", best_f32, DType::f32, threads, clock, [&] { sgemm(f32, threads); }));
  lines.push_back(line_of("tessera, bf16", best, DType::bf16, threads, clock,
                          [&] { matmul(bf16.c, bf16.a, bf16.b); }));
  fmt::print("[{}, {}] x [{}, {}], {:.2f} GHz\n", M, K, K, N, 1e-9 * clock);
  print_table(lines, 2.0 * static_cast<double>(M * N * K), "GFLOP/s", options.runs);
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
}  // namespace tessera::kernel_ladder

int main(int count, char** arguments) {
  using namespace tessera;
  kernel_ladder::Options options;
  CLI::App app("Times the rungs of the ladder of matrix products", "bench_matmul_ladder");
  app.option_defaults()->always_capture_default();
  app.add_option("--shape", options.shape, "M,N,K of c [M, N] = a [M, K] b [K, N]")
      ->delimiter(',')
      ->expected(3)
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::NonNegativeNumber);
  app.add_option("--runs", options.runs, "Timed runs per rung")->check(CLI::PositiveNumber);
  app.add_flag("--check", options.check, "Print the rungs' errors instead of their times");
  return run_main(app, count, arguments, [&] {
    run_ranks({.device = {DeviceType::cpu, 0}, .threads = options.threads}, [&](Communicator&) {
      options.check ? kernel_ladder::check_rungs() : kernel_ladder::time_rungs(options);
    });
    return 0;
  });
}
