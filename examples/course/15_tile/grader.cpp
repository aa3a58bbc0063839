// Grades a kernel of matrix products with tiles: results under every schedule, and sectors.
#include "examples/course/kernel_grader.h"
#include "examples/kernel_ladder/counted.h"
#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "tests/examples/host_results.h"

namespace tessera::course {
namespace {

constexpr kernel_ladder::Rung<kernel_ladder::Product<float>> kRung = {
    "shared_tiles", kernel_ladder::matmul::shared_tiles};

std::string wrong_results() {
  constexpr std::int64_t kShapes[][3] = {{1, 8, 8}, {9, 40, 72}, {33, 64, 40}};
  for (const auto& [M, N, K] : kShapes) {
    const std::string feedback = under_every_schedule([&, M = M, N = N, K = K]() -> std::string {
      const kernel_ladder::Operands operands(M, N, K, DType::f32);
      kRung.run(operands.product<float>());
      test::HostProduct<float> results(operands);
      const double error = kernel_ladder::largest_error(results.problem()),
                   most = static_cast<double>(K);
      if (error <= most) return "";
      test::HostProduct<float> right = results;
      kernel_ladder::three_loops(right.problem());
      return fmt::format("M, N, K = {}, {}, {}: {}", M, N, K,
                         first_of({first_wrong("c", results.c, right.c, {M, N})}));
    });
    if (!feedback.empty()) return feedback;
  }
  return "";
}

std::string too_many_sectors_read() {
  constexpr std::uint64_t kSide = 96, kTile = 32, kElements = kSide * kSide;
  // Each tile of c reads the rows of a and the columns of b that it needs once.
  constexpr Sectors needed = {.reads = 2 * kElements / 8 * (kSide / kTile),
                              .writes = kElements / 8};
  const kernel_ladder::Operands operands(kSide, kSide, kSide, DType::f32);
  const emulation::Statistics work = kernel_ladder::count(kRung, operands.product<float>()).work;
  return too_many_sectors(
      work, needed,
      "an element that was read should serve all threads of the block, from shared memory");
}

}  // namespace
}  // namespace tessera::course

int main() {
  return tessera::course::grade_kernel(tessera::course::wrong_results,
                                       tessera::course::too_many_sectors_read);
}
