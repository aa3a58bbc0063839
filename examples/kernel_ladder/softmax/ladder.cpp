// The ladder of softmaxes. Its last lines are the library's loss, and copies and reads of x.
#include "examples/kernel_ladder/ladder.h"

#include <fmt/format.h>

#include "examples/kernel_ladder/memory.h"
#include "examples/kernel_ladder/softmax/operands.h"
#include "kernels/cross_entropy/op.h"
#include "runtime/context.h"

namespace tessera::kernel_ladder {
namespace {

void time_softmaxes(const std::vector<std::int64_t>& shape, int runs) {
  const softmax::Operands o(shape[0], shape[1]);
  const softmax::Softmax problem = o.problem();
  const int threads = context().threads().size();
  std::vector<Line> lines;
  for (const softmax::SoftmaxRung& rung : softmax::kRungs) {
    lines.push_back({.name = rung.name,
                     .run = has(rung.isa) ? [&] { rung.run(problem); } : std::function<void()>(),
                     .ceiling_name = memory_name(rung.writes_y ? "copy" : "read",
                                                 rung.uses_threads ? threads : 1)});
  }
  const Tensor logsumexp = Tensor::empty({problem.N}, DType::f32);
  lines.push_back({.name = "tessera",
                   .run = [&] { cross_entropy_forward(o.loss, logsumexp, o.x, o.target); },
                   .ceiling_name = memory_name("read", threads)});
  for (const int count : threads > 1 ? std::vector{1, threads} : std::vector{1}) {
    lines.push_back(copy_line(o.y, o.x, count));
    lines.push_back(read_line(o.x, count));
  }
  fmt::print("[{}, {}], {:.1f} MB of logits\n", problem.N, problem.C,
             4e-6 * static_cast<double>(problem.N * problem.C));
  print_table(lines, static_cast<double>(problem.N * problem.C), "Gelem/s", runs);
}

void check_softmaxes() {
  fmt::print("[5, 3000]              error   at most\n");
  const softmax::Operands o(5, 3000);
  const softmax::Softmax problem = o.problem();
  for (const softmax::SoftmaxRung& rung : softmax::kRungs) {
    if (!has(rung.isa)) continue;
    rung.run(problem);
    fmt::print("{:<18} {:>9.1f} {:>9.0f}\n", rung.name, largest_error(problem, rung.writes_y),
               most_error(problem));
  }
}

}  // namespace

Ladder softmax_ladder() {
  return {"softmax", "rows,columns", {256, 50257}, time_softmaxes, check_softmaxes};
}

}  // namespace tessera::kernel_ladder
