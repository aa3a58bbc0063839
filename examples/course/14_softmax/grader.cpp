// Grades a kernel of softmaxes: results under every schedule, and sectors.
#include "examples/course/kernel_grader.h"
#include "examples/kernel_ladder/counted.h"
#include "tests/examples/host_results.h"

namespace tessera::course {
namespace {

namespace softmax = kernel_ladder::softmax;

constexpr kernel_ladder::Rung<softmax::Softmax> kRung = {"warp_per_row", softmax::warp_per_row};

std::string wrong_results() {
  constexpr std::int64_t kShapes[][2] = {{1, 4}, {9, 132}, {3, 1024}, {40, 12}};
  for (const auto& [N, C] : kShapes) {
    const std::string feedback = under_every_schedule([&, N = N, C = C]() -> std::string {
      const softmax::Operands operands(N, C);
      kRung.run(operands.problem());
      test::HostSoftmax results(operands);
      const double error = softmax::largest_error(results.problem(), true),
                   most = softmax::most_error(results.problem());
      if (error <= most) return "";
      test::HostSoftmax right = results;
      softmax::three_passes(right.problem());
      return fmt::format("{} rows of {} columns: {}", N, C,
                         first_of({first_wrong("y", results.y, right.y, {N, C}),
                                   first_wrong("loss", results.loss, right.loss, {N})}));
    });
    if (!feedback.empty()) return feedback;
  }
  return "";
}

std::string too_many_sectors_read() {
  constexpr std::uint64_t kRows = 64, kColumns = 768, kElements = kRows * kColumns;
  constexpr Sectors needed = {.reads = 2 * kElements / 8 + 2 * kRows,
                              .writes = kElements / 8 + kRows};
  const softmax::Operands operands(kRows, kColumns);
  const emulation::Statistics work = kernel_ladder::count(kRung, operands.problem()).work;
  return too_many_sectors(
      work, needed,
      "neighbouring lanes should touch neighbouring columns, and two passes over a row are enough");
}

}  // namespace
}  // namespace tessera::course

int main() {
  return tessera::course::grade_kernel(tessera::course::wrong_results,
                                       tessera::course::too_many_sectors_read);
}
