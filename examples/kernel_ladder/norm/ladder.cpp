// The ladder of RMS norms. Its last lines are the library's kernel and copies of x to y.
#include "examples/kernel_ladder/ladder.h"

#include <fmt/format.h>

#include "examples/kernel_ladder/memory.h"
#include "examples/kernel_ladder/norm/operands.h"
#include "kernels/rms_norm/op.h"
#include "runtime/context.h"

namespace tessera::kernel_ladder {
namespace {

void time_norms(const std::vector<std::int64_t>& shape, int runs) {
  const norm::Operands o(shape[0], shape[1]);
  const norm::Norm problem = o.problem();
  const int threads = context().threads().size();
  std::vector<Line> lines;
  for (const Rung<norm::Norm>& rung : norm::kRungs) {
    lines.push_back({.name = rung.name,
                     .run = has(rung.isa) ? [&] { rung.run(problem); } : std::function<void()>(),
                     .ceiling_name = memory_name("copy", rung.uses_threads ? threads : 1)});
  }
  lines.push_back({.name = "tessera",
                   .run = [&] { rms_norm_forward(o.y, o.rstd, o.x, o.weight, problem.epsilon); },
                   .ceiling_name = memory_name("copy", threads)});
  lines.push_back(copy_line(o.y, o.x, 1));
  if (threads > 1) lines.push_back(copy_line(o.y, o.x, threads));
  fmt::print("[{}, {}], {:.1f} MB read and as many written\n", problem.N, problem.C,
             4e-6 * static_cast<double>(problem.N * problem.C));
  print_table(lines, static_cast<double>(problem.N * problem.C), "Gelem/s", runs);
}

void check_norms() {
  fmt::print("[5, 3000]              error   at most\n");
  const norm::Operands o(5, 3000);
  const norm::Norm problem = o.problem();
  for (const Rung<norm::Norm>& rung : norm::kRungs) {
    if (!has(rung.isa)) continue;
    rung.run(problem);
    fmt::print("{:<18} {:>9.1f} {:>9.0f}\n", rung.name, largest_error(problem),
               most_error(problem));
  }
}

}  // namespace

Ladder norm_ladder() {
  return {"norm", "rows,columns", {16384, 768}, time_norms, check_norms};
}

}  // namespace tessera::kernel_ladder
