// Rings of bulk copies that bring the rows of norms to their teams (kernels/cuda/row_ring.h).
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/emulation/device/emulator.h"
#include "tests/kernels/norm_case.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/rank.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using test::Capability;
using test::Norm;
using test::NormCase;

/// A norm's passes. With a residual they take another matrix.
void run(const NormCase& c, bool residual) {
  residual ? c.add_forward() : c.forward();
  residual ? c.add_backward(Accumulate::no) : c.backward(Accumulate::no);
}

struct Use {
  unsigned blocks;
  std::size_t bytes;         // of dynamic shared memory
  std::uint64_t copied = 0;  // by the copy engine
  bool operator==(const Use&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Use& use) {
  return out << use.blocks << " blocks, " << use.bytes << " bytes, " << use.copied << " copied";
}

/// The forward pass, and the backward pass.
std::vector<Use> uses_of(const NormCase& c, bool residual) {
  current_stream().synchronize();
  emulation::start_launch_list();
  run(c, residual);
  current_stream().synchronize();
  std::vector<Use> uses;
  for (const emulation::LaunchRecord& launch : emulation::take_launch_list()) {
    if (launch.file.find("norm/cuda.cu") == std::string::npos) continue;
    uses.push_back({launch.blocks, launch.dynamic_bytes, launch.work.bulk_copy_bytes});
  }
  return uses;
}

}  // namespace

// The emulated GPU has four multiprocessors. Rings fit the share of a block: 227 KiB and 1 KiB over the
// blocks of a multiprocessor, less 2 KiB and what the sums of backward passes declare.
TEST_CASE("norms have rings of three or two stages where they fit") {
  struct Expected {
    int capability;
    Norm norm;
    DType dtype;
    std::int64_t C;
    bool residual;
    Use forward, backward;
  };
  // There are 300 rows. Blocks forward: 4 multiprocessors times those of __launch_bounds__, or a team for each row.
  // Backward: chunks of 8 rows. A block has 8 teams, 4 from 513 columns of 16 bits on, and 1 from 1,025 on.
  const std::vector<Expected> list = {
      {90, Norm::rms, DType::bf16, 768, false, {16, 96 + 12 * 1536}, {38, 96 + 24 * 1536}},
      {90, Norm::rms, DType::bf16, 768, true, {16, 96 + 24 * 1536}, {38, 64 + 24 * 1536}},
      {90, Norm::layer, DType::bf16, 768, true, {16, 96 + 24 * 1536}, {38, 64 + 24 * 1536}},
      {90, Norm::layer, DType::bf16, 1024, false, {16, 96 + 12 * 2048}, {38, 64 + 16 * 2048}},
      {90, Norm::layer, DType::bf16, 1024, true, {16, 96 + 24 * 2048}, {38, 0}},
      {90, Norm::rms, DType::bf16, 2048, true, {32, 32 + 6 * 4096}, {38, 32 + 9 * 4096}},
      {90, Norm::rms, DType::bf16, 256, true, {12, 192 + 48 * 512}, {38, 192 + 72 * 512}},
      {100, Norm::rms, DType::f32, 256, true, {12, 192 + 48 * 1024}, {38, 0}},
      {90, Norm::rms, DType::bf16, 8192, true, {8, 32 + 6 * 16384}, {38, 16 + 6 * 16384}},
      {90, Norm::rms, DType::bf16, 8200, true, {300, 0}, {38, 0}},
      {90, Norm::rms, DType::bf16, 766, true, {75, 0}, {38, 0}},
      {120, Norm::rms, DType::bf16, 768, false, {75, 0}, {38, 0}},
      {80, Norm::rms, DType::bf16, 768, true, {75, 0}, {38, 0}},
  };
  for (const Expected& e : list) {
    CAPTURE(e.capability, e.norm == Norm::rms, name_of(e.dtype), e.C, e.residual);
    const Capability gpu(e.capability);
    const test::Rank rank;
    const NormCase c(e.norm, {300, e.C}, e.dtype, DType::f32);
    const std::uint64_t matrix = c.x.bytes();
    Use forward = e.forward, backward = e.backward;
    if (forward.bytes > 0) forward.copied = (e.residual ? 2 : 1) * matrix;
    if (backward.bytes > 0) backward.copied = (e.residual ? 3 : 2) * matrix;
    const std::vector<Use> uses = uses_of(c, e.residual);
    REQUIRE(uses.size() == 2);
    CHECK(uses[0] == forward);
    CHECK(uses[1] == backward);
  }
}

// Teams have no row, 1, 2, 3 and more, and their number differs within a launch.
TEST_CASE("norms have the same bits with rings as without") {
  const auto [dtype, shape, residual] = GENERATE(table<DType, Shape, bool>({
      {DType::bf16, {12700, 16}, true},  // backward, teams of a warp have 3 or 4 rows
      {DType::bf16, {150, 264}, false},
      {DType::f32, {150, 260}, true},
      {DType::bf16, {1, 768}, true},
      {DType::bf16, {70, 768}, false},
      {DType::f16, {200, 520}, true},
      {DType::f32, {70, 520}, true},
      {DType::bf16, {70, 1024}, true},  // no ring backward
      {DType::bf16, {101, 1032}, false},
      {DType::bf16, {101, 1032}, true},
      {DType::f32, {27, 2056}, false},
      {DType::bf16, {23, 4104}, true},
      {DType::bf16, {9, 8192}, true},
      {DType::bf16, {9, 8200}, true},
  }));
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  CAPTURE(name_of(dtype), to_string(shape), norm == Norm::rms, residual);
  const test::Rank owner;  // the tensors outlive the contexts
  const auto case_on = [&](int capability) {
    const Capability gpu(capability);
    const test::Rank rank;
    const NormCase c(norm, shape, dtype, DType::f32);
    run(c, residual);
    current_stream().synchronize();
    return c;
  };
  const NormCase without = case_on(80);
  for (const emulation::Schedule& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    test::require_same_results(case_on(90), without);
  }
}

}  // namespace tessera
