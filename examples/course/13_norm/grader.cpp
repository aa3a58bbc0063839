// Grades a kernel of RMS norms: results under every schedule, and sectors.
#include "examples/course/kernel_grader.h"
#include "examples/kernel_ladder/counted.h"
#include "tests/examples/host_results.h"

namespace tessera::course {
namespace {

namespace norm = kernel_ladder::norm;

constexpr kernel_ladder::Rung<norm::Norm> kRung = {"warp_per_row", norm::warp_per_row};

std::string wrong_results() {
  constexpr std::int64_t kShapes[][2] = {{1, 4}, {9, 132}, {3, 1024}, {40, 12}};
  for (const auto& [N, C] : kShapes) {
    const std::string feedback = under_every_schedule([&, N = N, C = C]() -> std::string {
      const norm::Operands operands(N, C);
      kRung.run(operands.problem());
      test::HostNorm results(operands);
      const double error = norm::largest_error(results.problem()),
                   most = norm::most_error(results.problem());
      if (error <= most) return "";
      test::HostNorm right = results;
      norm::whole_passes(right.problem());
      return fmt::format("{} rows of {} columns: {}", N, C,
                         first_of({first_wrong("rstd", results.rstd, right.rstd, {N}),
                                   first_wrong("y", results.y, right.y, {N, C})}));
    });
    if (!feedback.empty()) return feedback;
  }
  return "";
}

std::string too_many_sectors_read() {
  constexpr std::uint64_t kRows = 64, kColumns = 768, kElements = kRows * kColumns;
  constexpr Sectors needed = {.reads = 3 * kElements / 8, .writes = kElements / 8 + kRows};
  const norm::Operands operands(kRows, kColumns);
  const emulation::Statistics work = kernel_ladder::count(kRung, operands.problem()).work;
  return too_many_sectors(work, needed, "neighbouring lanes should touch neighbouring columns");
}

}  // namespace
}  // namespace tessera::course

int main() {
  return tessera::course::grade_kernel(tessera::course::wrong_results,
                                       tessera::course::too_many_sectors_read);
}
