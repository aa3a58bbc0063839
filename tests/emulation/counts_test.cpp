// The emulator's counts are those of hand-counted kernels.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/emulation/device/accesses.h"
#include "tests/emulation/counted_kernels.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using emulation::Statistics;
using test::Pattern;
using test::run_pattern;

float* global_floats() {
  alignas(128) static float data[4096];
  static const bool added = (emulation::add_global_memory(data, sizeof data), true);
  static_cast<void>(added);
  std::fill(std::begin(data), std::end(data), 0.0f);
  return data;
}

Statistics counts_of(Pattern pattern) {
  return run_pattern(pattern, global_floats());
}

void require(const emulation::Traffic& traffic, std::uint64_t bytes, std::uint64_t sectors,
             std::uint64_t distinct) {
  REQUIRE(traffic.bytes == bytes);
  REQUIRE(traffic.sectors == sectors);
  REQUIRE(traffic.distinct == distinct);
}

}  // namespace

TEST_CASE("counts: a warp's accesses to global memory become sectors of 32 bytes") {
  for (const auto& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    require(counts_of(Pattern::neighbours).reads, 128, 4, 4);
    require(counts_of(Pattern::neighbours).writes, 128, 4, 4);
    require(counts_of(Pattern::eighths).reads, 128, 32, 32);
    require(counts_of(Pattern::vectors).reads, 512, 16, 16);
    require(counts_of(Pattern::vectors).writes, 512, 16, 16);
    require(counts_of(Pattern::fields).writes, 512, 16, 16);
    require(counts_of(Pattern::halves).reads, 64, 2, 2);
    require(counts_of(Pattern::shifted).reads, 128, 5, 5);
    require(counts_of(Pattern::alternating).reads, 128, 2, 2);
    require(counts_of(Pattern::same).reads, 128, 1, 1);
  }
}

TEST_CASE("counts: a sector that is read twice is two sectors and one distinct sector") {
  require(counts_of(Pattern::read_twice).reads, 256, 8, 4);
  REQUIRE(counts_of(Pattern::read_twice).barriers == 1);
}

TEST_CASE("counts: a sector that the launch has written is not read from memory") {
  require(counts_of(Pattern::read_what_it_wrote).reads, 128, 4, 0);
  require(counts_of(Pattern::read_what_it_wrote).writes, 256, 8, 8);
  // Also where lanes leave the loop at different times: only row 0 was there before.
  require(counts_of(Pattern::uneven_chain).reads, 4 * (32 + 24 + 16 + 8), 16, 4);
  require(counts_of(Pattern::uneven_shift).reads, 4 * (32 + 24 + 16 + 8), 16, 16);
  require(counts_of(Pattern::uneven_chain).writes, 4 * (32 + 24 + 16 + 8) + 128, 20, 20);
}

// Lanes i % 4 = 3 read four rows, lanes 2 three, and so on. In row 1 three of four lanes are left;
// every sector of 8 floats still has readers in all rows.
TEST_CASE("counts: lanes that leave a loop early share the instructions before") {
  for (const auto& schedule : test::kSchedules) {
    const test::ScheduleGuard guard(schedule);
    require(counts_of(Pattern::early_exit).reads, 128 + 80, 4 + 3, 7);
    require(counts_of(Pattern::uneven_loop).reads, 4 * (32 + 24 + 16 + 8), 16, 16);
  }
}

TEST_CASE("counts: lanes that use one bank of shared memory take extra turns") {
  REQUIRE(counts_of(Pattern::shared_rows).bank_conflicts == 0);
  REQUIRE(counts_of(Pattern::shared_rows).shared_accesses == 1);
  REQUIRE(counts_of(Pattern::shared_even).bank_conflicts == 1);
  REQUIRE(counts_of(Pattern::shared_column).bank_conflicts == 31);
  REQUIRE(counts_of(Pattern::shared_same).bank_conflicts == 0);
  REQUIRE(counts_of(Pattern::shared_vectors).bank_conflicts == 0);
}

TEST_CASE("counts: a thread's own memory and parameters are not counted") {
  const Statistics counts = counts_of(Pattern::local_array);
  require(counts.reads, 0, 0, 0);
  require(counts.writes, 128, 4, 4);
  REQUIRE(counts.shared_accesses == 0);
}

TEST_CASE("counts: asynchronous copies are reads of global and writes of shared memory") {
  const Statistics counts = counts_of(Pattern::async_copies);
  require(counts.reads, 504, 16, 16);
  REQUIRE(counts.async_copy_bytes == 504);
  REQUIRE(counts.shared_accesses == 1);
  REQUIRE(counts.bank_conflicts == 0);
}

TEST_CASE("counts: atomics and matrix products") {
  REQUIRE(counts_of(Pattern::atomics).atomics == 64);
  REQUIRE(counts_of(Pattern::products).matrix_products == 3);
  REQUIRE(counts_of(Pattern::products).matrix_flops == 3 * 2 * 16 * 8 * 16);
}

TEST_CASE("counts: launches are listed in order, each with its own counts") {
  counts_of(Pattern::same);  // before the list
  emulation::start_launch_list();
  counts_of(Pattern::neighbours);
  counts_of(Pattern::eighths);
  const std::vector<emulation::LaunchRecord> list = emulation::take_launch_list();
  counts_of(Pattern::same);  // after it
  REQUIRE(list.size() == 2);
  for (const emulation::LaunchRecord& launch : list) {
    REQUIRE(launch.kernel.find("kernel") != std::string::npos);
    REQUIRE(launch.blocks == 1);
    REQUIRE(launch.threads == 32);
  }
  require(list[0].work.reads, 128, 4, 4);
  require(list[1].work.reads, 128, 32, 32);
  REQUIRE(emulation::take_launch_list().empty());
}

TEST_CASE("counts: every counter has a name of its own") {
  Statistics statistics;
  std::uint64_t value = 0;
  for (const emulation::Counter& counter : emulation::counters()) {
    REQUIRE(counter.of(statistics) == 0);
    counter.of(statistics) = ++value;
  }
  REQUIRE(value * sizeof value == sizeof statistics);
}

}  // namespace tessera
