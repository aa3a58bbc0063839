// The rungs for a GPU touch as much of its memory as the book says.
#include <catch2/catch.hpp>

#include "runtime/emulation/device/emulator.h"
#include "tests/examples/gpu_rows.h"
#include "tests/support/rank.h"

namespace tessera::kernel_ladder {
namespace {

// Rows as GPT-2's are. A sector has 8 floats, a warp 32 lanes.
constexpr std::int64_t kN = 256, kC = 768, kElements = kN * kC;

/// Sectors that the instructions of a rung's launch read and write, and the distinct ones.
struct Sectors {
  std::int64_t reads, writes, distinct_reads, distinct_writes;
  bool operator==(const Sectors&) const = default;
};

template <typename Rows, typename Problem>
Sectors sectors_of(const Rows& rows, const Rung<Problem>& rung) {
  current_stream().synchronize();
  emulation::reset_statistics();
  rung.run(rows.problem());
  current_stream().synchronize();
  const emulation::Statistics s = emulation::statistics();
  const auto count = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  return {count(s.reads.sectors), count(s.writes.sectors), count(s.reads.distinct),
          count(s.writes.distinct)};
}

}  // namespace

TEST_CASE(
    "a norm with a thread per row touches a sector for each element, one with a warp an eighth") {
  const test::Rank rank;
  const test::GpuNorm rows(kN, kC);
  const Sectors thread = sectors_of(rows, norm::kGpuRungs[0]);
  const Sectors warp = sectors_of(rows, norm::kGpuRungs[1]);
  const Sectors registers = sectors_of(rows, norm::kGpuRungs[2]);
  // x twice, and the weight, which 32 lanes read at one address.
  CHECK(thread.reads == 2 * kElements + kElements / 32);
  CHECK(thread.writes == kElements + kN / 8);
  // x twice and the weight. rstd of a row is a sector.
  CHECK(warp.reads == 3 * kElements / 8);
  CHECK(warp.writes == kElements / 8 + kN);
  CHECK(registers.reads == 2 * kElements / 8);
  CHECK(registers.writes == kElements / 8 + kN);
  for (const Sectors& each : {thread, warp, registers}) {
    CHECK(each.distinct_reads == kElements / 8 + kC / 8);
    CHECK(each.distinct_writes == kElements / 8 + kN / 8);
  }
}

TEST_CASE("a softmax with its row in registers reads a sector once") {
  const test::Rank rank;
  const test::GpuSoftmax rows(kN, kC);
  const Sectors thread = sectors_of(rows, softmax::kGpuRungs[0]);
  const Sectors warp = sectors_of(rows, softmax::kGpuRungs[1]);
  const Sectors registers = sectors_of(rows, softmax::kGpuRungs[2]);
  // x twice, and for each row its target and x at the target.
  CHECK(thread.reads == 2 * kElements + kN / 8 + kN);
  CHECK(thread.writes == kElements + kN / 8);
  CHECK(warp.reads == 2 * kElements / 8 + 2 * kN);
  CHECK(registers.reads == kElements / 8 + 2 * kN);
  CHECK(registers.writes == kElements / 8 + kN);
}

}  // namespace tessera::kernel_ladder
