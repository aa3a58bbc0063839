// Clusters on the emulator: blocks that share copies and barriers, and that broken rules are noticed.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "kernels/cuda/cluster.h"
#include "kernels/cuda/tensor_map.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kSchedules;
using test::launch_clusters;

/// Bugs of the kernel below.
enum class Bug {
  none,
  no_barrier,
  no_barrier_at_the_end,
  copy_outside,
  arrival_outside,
  too_few_bytes_in_one_block,
  no_bytes_in_one_block,
  refill_without_the_other_block,
};

constexpr int kTile = 64 * 64, kSteps = 3, kThreads = 128;
constexpr unsigned kParts = 4;  // tiles of a step: a cluster has 1, 2 or 4 blocks
constexpr std::size_t kBytes = kParts * kTile * sizeof(bfloat16) + 2 * sizeof(gpu::Barrier) + 1024;

/// Every block reads all tiles of each step. The blocks of a cluster share out the copies. out [blocks, steps,
/// parts, 64 x 64].
template <Bug bug>
__global__ void share_tiles(const gpu::TensorMap map, float* out) {
  gpu::TileMemory memory;
  auto* const tiles = memory.take<bfloat16>(kParts * kTile, 1024);
  auto* const full = memory.take<gpu::Barrier>(1);
  auto* const empty = memory.take<gpu::Barrier>(1);
  const unsigned blocks = gpu::blocks_of_cluster(), rank = gpu::block_in_cluster();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    gpu::initialize(*full, 1);
    gpu::initialize(*empty, kThreads + static_cast<int>(blocks - 1) * kThreads / 32);
    gpu::publish_barriers();
  }
  bug == Bug::no_barrier ? __syncthreads() : gpu::sync_cluster();
  for (int step = 0; step < kSteps; ++step) {
    const unsigned parity = static_cast<unsigned>(step) % 2;
    if (thread == 0) {
      if (bug != Bug::refill_without_the_other_block || rank > 0) {
        gpu::wait_for_cluster(*empty, parity ^ 1);
      }
      int bytes = static_cast<int>(kParts) * kTile * 2;
      if (rank == 1 && bug == Bug::too_few_bytes_in_one_block) bytes -= 16;
      if (rank == 1 && bug == Bug::no_bytes_in_one_block) bytes = 0;
      gpu::arrive_and_expect(*full, bytes);
      const unsigned all = (2u << (blocks - 1)) - 1;
      const auto mask = static_cast<std::uint16_t>(bug == Bug::copy_outside ? 2 * all + 1 : all);
      for (unsigned part = rank; part < kParts; part += blocks) {
        const int row = (step * static_cast<int>(kParts) + static_cast<int>(part)) * 64;
        gpu::copy_tile(tiles + part * kTile, map, {0, row, 0, 0}, *full, mask);
      }
    }
    gpu::wait(*full, parity);
    float* const to = out + (blockIdx.x * kSteps + static_cast<unsigned>(step)) * kParts * kTile;
    for (int i = thread; i < static_cast<int>(kParts) * kTile; i += kThreads) {
      const int row = i / 64, chunk = i % 64 / 8;
      to[i] = static_cast<float>(tiles[row * 64 + (chunk ^ row % 8) * 8 + i % 8]);
    }
    gpu::arrive(*empty);
    __syncwarp();
    for (unsigned other = 0; thread % 32 == 0 && other < blocks; ++other) {
      if (other != rank) gpu::arrive(*empty, bug == Bug::arrival_outside ? blocks : other);
    }
  }
  if (bug != Bug::no_barrier_at_the_end) gpu::sync_cluster();
}

std::vector<bfloat16> values() {
  std::vector<bfloat16> all;
  for (int i = 0; i < kSteps * static_cast<int>(kParts) * kTile; ++i) {
    all.emplace_back(static_cast<float>(i % 251) - 125.0f);
  }
  return all;
}

/// The kernel's results, and the emulator's complaint or "nothing".
struct Outcome {
  std::vector<float> out;
  std::string said = "nothing";
};

template <typename... Arguments>
std::string said_of(const Arguments&... arguments) {
  try {
    launch_clusters(arguments...);
    return "nothing";
  } catch (const emulation::Failure& failure) {
    return failure.what();
  }
}

template <Bug bug>
Outcome outcome(unsigned blocks, unsigned cluster) {
  const std::vector<bfloat16> tiles = values();
  const gpu::TensorMap map = gpu::tensor_map(tiles.data(),
                                             {.channels = 64,
                                              .tokens = kSteps * int{kParts} * 64,
                                              .heads = 1,
                                              .batch = 1,
                                              .token_stride = 128,
                                              .head_stride = 128,
                                              .batch_stride = 128},
                                             64);
  Outcome result{std::vector<float>(blocks * tiles.size(), -1.0f)};
  result.said = said_of(cluster, share_tiles<bug>, dim3(blocks), dim3(kThreads), kBytes, map,
                        result.out.data());
  return result;
}

/// The complaint under every schedule has one of the texts.
template <Bug bug>
void require_complaint(const std::string& rule, const std::string& or_rule) {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    REQUIRE_THAT(outcome<bug>(2, 2).said, Contains(rule) || Contains(or_rule));
  }
}
template <Bug bug>
void require_complaint(const std::string& rule) {
  require_complaint<bug>(rule, rule);
}

}  // namespace

TEST_CASE("the blocks of a cluster share out the copies of tiles that all of them read") {
  const std::vector<bfloat16> tiles = values();
  for (const auto& schedule : kSchedules) {
    for (const unsigned cluster : {1u, 2u, 4u}) {
      CAPTURE(cluster);
      const test::ScheduleGuard guard(schedule);
      emulation::reset_statistics();
      const Outcome all = outcome<Bug::none>(4, cluster);
      REQUIRE(all.said == "nothing");
      for (std::size_t i = 0; i < all.out.size(); ++i) {
        if (all.out[i] != static_cast<float>(tiles[i % tiles.size()])) FAIL("element " << i);
      }
      // Each cluster reads each tile once.
      const emulation::Statistics counts = emulation::statistics();
      REQUIRE(counts.blocks == 4);
      REQUIRE(counts.tile_copies == 4 / cluster * kSteps * kParts);
      REQUIRE(counts.bulk_copy_bytes == 4 / cluster * tiles.size() * sizeof(bfloat16));
    }
  }
}

TEST_CASE("misuse: shared memory of a block of the cluster that has not begun, or has ended") {
  require_complaint<Bug::no_barrier>("before a barrier.cluster: that block may not have begun");
  require_complaint<Bug::no_barrier_at_the_end>("of the cluster, which has ended",
                                                "that no thread waited for; end both with");
}

TEST_CASE("misuse: copies and arrivals to blocks outside the cluster") {
  require_complaint<Bug::copy_outside>(
      "a multicast to blocks 7 (a bit for each) in a cluster of 2 blocks");
  require_complaint<Bug::arrival_outside>(
      "shared memory of block 2 of the cluster, which has 2 blocks");
}

TEST_CASE("misuse: a block of the cluster expects other bytes than all copies have") {
  require_complaint<Bug::too_few_bytes_in_one_block>(
      "copies of 32768 bytes at a barrier that expects 32752");
  require_complaint<Bug::no_bytes_in_one_block>(
      "bytes at a barrier that expects 0",
      "the block ends with tile copies that no thread waited for");
}

TEST_CASE("misuse: a tile is copied to a block of the cluster that still reads it") {
  bool shows = false;
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    const Outcome all = outcome<Bug::refill_without_the_other_block>(2, 2);
    shows = shows || all.said != "nothing" || all.out != outcome<Bug::none>(2, 2).out;
  }
  REQUIRE(shows);
}

// ---- The cluster's barrier, and words in other blocks -------------------------------------------

namespace {

/// Every block tells every other one its index, through shared memory. out [blocks, cluster].
__global__ void exchange(unsigned* out) {
  gpu::TileMemory memory;
  const unsigned blocks = gpu::blocks_of_cluster(), rank = gpu::block_in_cluster();
  unsigned* const words = memory.take<unsigned>(blocks);
  gpu::sync_cluster();
  if (threadIdx.x < blocks) gpu::in_block(words, threadIdx.x)[rank] = blockIdx.x + 10;
  gpu::sync_cluster();
  if (threadIdx.x < blocks) out[blockIdx.x * blocks + threadIdx.x] = words[threadIdx.x];
}

enum class BarrierBug { none, two_arrivals, no_arrival, no_wait, absent_block };

__global__ void synchronize(BarrierBug bug) {
  const emulation::Site site = emulation::Site::current();
  if (bug == BarrierBug::absent_block && blockIdx.x == 1) return;
  if (bug != BarrierBug::no_arrival) emulation::arrive_at_cluster(site);
  if (bug == BarrierBug::two_arrivals) emulation::arrive_at_cluster(site);
  if (bug != BarrierBug::no_wait) emulation::wait_for_cluster(site);
}

/// Block `from` arrives at a barrier of the other block, which waits for it or not.
__global__ void signal(unsigned from, bool waits) {
  gpu::TileMemory memory;
  auto* const barrier = memory.take<gpu::Barrier>(1);
  if (threadIdx.x == 0) gpu::initialize(*barrier, 1);
  gpu::sync_cluster();
  if (threadIdx.x > 0) return;
  if (gpu::block_in_cluster() == from) {
    gpu::arrive(*barrier, from ^ 1);
  } else if (waits) {
    gpu::wait_for_cluster(*barrier, 0);
  }
}

}  // namespace

TEST_CASE("the blocks of a cluster write words to each other's shared memory") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<unsigned> out(6 * 3, 0);
    launch_clusters(3, exchange, dim3(6), dim3(128), 1024, out.data());
    for (unsigned i = 0; i < out.size(); ++i) {
      REQUIRE(out[i] == i / 9 * 3 + i % 3 + 10);
    }
  }
}

TEST_CASE("misuse: the barrier of a cluster") {
  const auto said = [](BarrierBug bug) {
    return said_of(2, synchronize, dim3(2), dim3(128), 0, bug);
  };
  REQUIRE(said(BarrierBug::none) == "nothing");
  REQUIRE(said(BarrierBug::absent_block) == "nothing");  // threads that have ended do not count
  REQUIRE_THAT(said(BarrierBug::two_arrivals), Contains("a second barrier.cluster.arrive"));
  REQUIRE_THAT(said(BarrierBug::no_arrival), Contains("barrier.cluster.wait without an arrive"));
  REQUIRE_THAT(said(BarrierBug::no_wait), Contains("ends after barrier.cluster.arrive without"));
}

TEST_CASE("misuse: an arrival at a barrier of a block that does not wait for it before its end") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    for (const unsigned from : {0u, 1u}) {
      REQUIRE(said_of(2, signal, dim3(2), dim3(128), 1024, from, true) == "nothing");
      REQUIRE_THAT(said_of(2, signal, dim3(2), dim3(128), 1024, from, false),
                   Contains("which has ended") || Contains("that no thread waited for; end both"));
    }
  }
}

TEST_CASE("misuse: grids and blocks that do not fit clusters") {
  const auto said = [](unsigned cluster, unsigned blocks, unsigned threads) {
    return said_of(cluster, synchronize, dim3(blocks), dim3(threads), 0, BarrierBug::none);
  };
  REQUIRE(said(8, 16, 256) == "nothing");
  REQUIRE_THAT(said(2, 3, 128), Contains("a grid of 3 x 1 x 1 blocks in clusters of 2:"));
  REQUIRE_THAT(said(9, 9, 128), Contains("in clusters of 9: at most 8 blocks"));
  REQUIRE_THAT(said(2, 2, 96), Contains("2 blocks of 96 threads"));
  REQUIRE_THAT(said(4, 4, 1024), Contains("at most 64 warps together"));
}

}  // namespace tessera
