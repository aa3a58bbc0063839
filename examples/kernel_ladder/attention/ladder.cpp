// The ladder of attention. Its last line is the library's kernel. The peak is that of the products.
#include "examples/kernel_ladder/ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "examples/kernel_ladder/attention/operands.h"
#include "examples/kernel_ladder/table.h"
#include "kernels/attention/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/measure/peak.h"

namespace tessera::kernel_ladder {
namespace {

void time_attention(const std::vector<std::int64_t>& shape, int runs) {
  const attention::Operands o(shape[0], shape[1], shape[2]);
  const attention::Attention problem = o.problem();
  check(problem.D <= attention::kMostChannels, "a head of {} channels; expected at most {}",
        problem.D, attention::kMostChannels);
  const int threads = context().threads().size();
  const double clock = clock_rate();
  const cpu::Isa products = std::min(cpu::best_isa(), cpu::Isa::avx512);
  std::vector<Line> lines;
  for (const Rung<attention::Attention>& rung : attention::kRungs) {
    lines.push_back(peak_line(rung.name, std::max(rung.isa, products), DType::f32,
                              rung.uses_threads ? threads : 1, clock, [&] { rung.run(problem); }));
  }
  const auto heads = [&](const Tensor& t) { return heads_of(t, 0, 1, problem.D); };
  const Tensor logsumexp = Tensor::empty({problem.H, 1, problem.T}, DType::f32);
  lines.push_back(peak_line("tessera", products, DType::f32, threads, clock, [&] {
    attention_forward(heads(o.o), logsumexp, heads(o.q), heads(o.k), heads(o.v), problem.scale);
  }));
  fmt::print("{} heads of [{}, {}], {:.2f} GHz\n", problem.H, problem.T, problem.D, 1e-9 * clock);
  const std::int64_t scores = problem.H * problem.T * (problem.T + 1) / 2;
  print_table(lines, 4.0 * static_cast<double>(scores * problem.D), "GFLOP/s", runs);
}

void check_attention() {
  fmt::print("2 heads of [150, 20]    error   at most\n");
  const attention::Operands o(2, 150, 20, 40.0f);
  const attention::Attention problem = o.problem();
  for (const Rung<attention::Attention>& rung : attention::kRungs) {
    if (!has(rung.isa)) continue;
    rung.run(problem);
    fmt::print("{:<18} {:>9.1f} {:>9.0f}\n", rung.name, largest_error(problem),
               most_error(problem));
  }
}

}  // namespace

Ladder attention_ladder() {
  return {"attention", "heads,tokens,channels", {4, 1024, 64}, time_attention, check_attention};
}

}  // namespace tessera::kernel_ladder
