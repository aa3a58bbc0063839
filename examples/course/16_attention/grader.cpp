// Grades a kernel of attention with tiles: results under every schedule, and sectors.
#include "examples/course/kernel_grader.h"
#include "examples/kernel_ladder/counted.h"
#include "tests/examples/host_results.h"

namespace tessera::course {
namespace {

namespace attention = kernel_ladder::attention;

constexpr kernel_ladder::Rung<attention::Attention> kRung = {"shared_tiles",
                                                             attention::shared_tiles};
constexpr std::int64_t kChannels = attention::kGpuChannels;

std::string wrong_results() {
  struct Shape {
    std::int64_t H, T;
    const char* step;
  };
  constexpr Shape kShapes[] = {
      {1, 1, "one token, which sees itself only"},
      {1, 20, "20 tokens, one tile: are later keys hidden, and is the sum that of the weights?"},
      {1, 97,
       "97 tokens, where one tile is right: is all that has been added corrected when the maximum "
       "rises?"},
      {2, 150, "two heads, where one is right: does each head begin at its own rows?"}};
  for (const auto& [H, T, step] : kShapes) {
    const std::string feedback = under_every_schedule([&, H = H, T = T,
                                                       step = step]() -> std::string {
      const attention::Operands operands(H, T, kChannels, 40.0f, DType::f32);
      kRung.run(operands.problem());
      test::HostAttention results(operands);
      const double error = attention::largest_error(results.problem()),
                   most = attention::most_error(results.problem());
      if (error <= most) return "";
      test::HostAttention right = results;
      attention::online(right.problem());
      return fmt::format("{}. With {}",
                         first_of({first_wrong("o", results.o, right.o, {H, T, kChannels})}), step);
    });
    if (!feedback.empty()) return feedback;
  }
  return "";
}

std::string too_many_sectors_read() {
  constexpr std::uint64_t kTokens = 128, kWidth = kChannels, kBlocks = kTokens / 64;
  // Rows of k and v that blocks of 64 queries read, and two halves of a sector for each query's rows.
  constexpr std::uint64_t kRows = 2 * 64 * kBlocks * (kBlocks + 1) / 2;
  constexpr Sectors needed = {.reads = kRows * kWidth / 8 + 2 * kTokens * kWidth / 8,
                              .writes = 2 * kTokens * kWidth / 8};
  const attention::Operands operands(1, kTokens, kChannels);
  const emulation::Statistics work = kernel_ladder::count(kRung, operands.problem()).work;
  return too_many_sectors(
      work, needed,
      "a tile of keys that was read should serve all queries of the block, and "
      "keys after the last query none; and neighbouring threads should copy neighbouring "
      "16 bytes");
}

}  // namespace
}  // namespace tessera::course

int main() {
  return tessera::course::grade_kernel(tessera::course::wrong_results,
                                       tessera::course::too_many_sectors_read);
}
