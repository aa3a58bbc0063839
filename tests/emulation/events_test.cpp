// The list of a kernel's events: copies, barriers and products, in the order of each warp's program.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/cuda/panel_tile.h"
#include "runtime/emulation/device/events.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using emulation::EventKind;
using emulation::KernelEvent;
using gpu::Panels;
using test::kSchedules;
using test::launch;
using Events = std::vector<KernelEvent>;

/// f's launches as events.
template <typename F>
Events events_of(const F& f) {
  emulation::start_event_list();
  f();
  return emulation::take_event_list();
}

Events of_warp(const Events& all, unsigned block, unsigned warp) {
  Events found;
  for (const KernelEvent& event : all) {
    // The last lane to arrive completes a barrier, so the schedule decides the warp.
    if (event.kind == EventKind::barrier_completed) continue;
    if (event.block == block && event.warp == warp) found.push_back(event);
  }
  return found;
}

/// The places of events of this kind, number and phase.
std::vector<std::size_t> places(const Events& all, EventKind kind, int number, int phase) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind == kind && all[i].number == number && all[i].phase == phase) {
      found.push_back(i);
    }
  }
  return found;
}

void require_order(const std::vector<std::size_t>& earlier, const std::vector<std::size_t>& later) {
  REQUIRE_FALSE(earlier.empty());
  REQUIRE_FALSE(later.empty());
  REQUIRE(earlier.back() < later.front());
}

// ---- A product of tiles -------------------------------------------------------------------------

constexpr int kTile = 64 * 64;

/// Barrier 0 counts the bytes of two tiles, 64 x 64 each. Then a group of products from shared memory,
/// and one with the left operand in registers.
__global__ void multiply(const bfloat16* tiles) {
  gpu::TileMemory memory;
  const gpu::PanelTile<bfloat16, 64, 64> a{memory.take<bfloat16>(kTile, 1024)};
  const gpu::PanelTile<bfloat16, 64, 64> b{memory.take<bfloat16>(kTile, 1024)};
  auto* const full = memory.take<gpu::Barrier>(1);
  if (threadIdx.x == 0) {
    gpu::initialize(*full, 1);
    gpu::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    gpu::arrive_and_expect(*full, 2 * kTile * 2);
    gpu::copy_bytes(a.data, tiles, kTile * 2, *full);
    gpu::copy_bytes(b.data, tiles, kTile * 2, *full);
  }
  gpu::wait(*full, 0);
  float scores[8][4], outputs[8][4] = {};
  const unsigned weights[4] = {};
  gpu::begin_products();
  gpu::multiply_tiles<bfloat16, Panels::of_columns_of_b, 64>(scores, a.rows(0, 0), b.rows(0, 0),
                                                             false);
  gpu::commit_products();
  gpu::begin_products();
  gpu::multiply_registers<bfloat16, Panels::of_rows_of_b, 64>(outputs, weights, b.columns(0), true);
  gpu::commit_products();
  gpu::wait_products<1>(scores);
  gpu::wait_products<0>(outputs);
}

Events multiply_in(unsigned blocks) {
  const std::vector<bfloat16> tiles(kTile, bfloat16(1.0f));
  return events_of(
      [&] { launch(multiply, dim3(blocks), dim3(128), 2 * kTile * 2 + 8 + 1024, tiles.data()); });
}

}  // namespace

TEST_CASE("events: a warp's copies, waits and products are in the order of its program") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    const Events all = multiply_in(2);
    for (unsigned block = 0; block < 2; ++block) {
      for (unsigned warp = 0; warp < 4; ++warp) {
        const auto event = [&](EventKind kind, int number, int phase, int amount) {
          return KernelEvent{kind, block, warp, number, phase, amount};
        };
        Events expected;
        if (warp == 0) {
          expected = {event(EventKind::barrier_arrived, 0, 0, 16384),
                      event(EventKind::copy_started, 0, 0, 8192),
                      event(EventKind::copy_started, 0, 0, 8192)};
        }
        for (const KernelEvent& each : {event(EventKind::barrier_waited, 0, 0, 0),
                                        event(EventKind::tiles_multiplied, 0, 0, 64),
                                        event(EventKind::products_committed, 0, 0, 0),
                                        event(EventKind::registers_multiplied, 1, 0, 64),
                                        event(EventKind::products_committed, 1, 0, 0),
                                        event(EventKind::products_waited, 0, 0, 1),
                                        event(EventKind::products_waited, 1, 0, 0)}) {
          expected.push_back(each);
        }
        REQUIRE(of_warp(all, block, warp) == expected);
      }
    }
  }
}

TEST_CASE("events: a barrier completes once, after its copies and before its waits") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    const Events all = multiply_in(1);
    const auto completed = places(all, EventKind::barrier_completed, 0, 0);
    REQUIRE(completed.size() == 1);
    require_order(places(all, EventKind::copy_started, 0, 0), completed);
    require_order(completed, places(all, EventKind::barrier_waited, 0, 0));
  }
}

TEST_CASE("events: there are none before the list starts, and none after it ends") {
  multiply_in(1);
  const std::vector<bfloat16> tiles(kTile);
  launch(multiply, dim3(1), dim3(128), 2 * kTile * 2 + 8 + 1024, tiles.data());
  REQUIRE(emulation::take_event_list().empty());
  REQUIRE(events_of([] {}).empty());
}

// ---- Phases of a ring, and turns ----------------------------------------------------------------

namespace {

/// Warp 2 hands a word to warps 0 and 1, `count` times. Barrier 0 is full, barrier 1 is empty.
__global__ void hand_over(int count) {
  gpu::TileMemory memory;
  auto* const full = memory.take<gpu::Barrier>(2);
  gpu::Barrier* const empty = full + 1;
  if (threadIdx.x == 0) {
    gpu::initialize(*full, 32);
    gpu::initialize(*empty, 64);
  }
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    const unsigned parity = static_cast<unsigned>(i) % 2;
    if (threadIdx.x >= 64) {
      gpu::wait(*empty, parity ^ 1);
      gpu::arrive(*full);
    } else {
      gpu::wait(*full, parity);
      gpu::arrive(*empty);
    }
  }
}

/// Warp 0 waits at named barrier 3 for warp 1, `count` times. Warp 1 waits at named barrier 4.
__global__ void take_turns(int count) {
  for (int i = 0; i < count; ++i) {
    if (threadIdx.x < 32) {
      gpu::named_sync(3, 64);
      gpu::named_arrive(4, 64);
    } else {
      gpu::named_arrive(3, 64);
      gpu::named_sync(4, 64);
    }
  }
}

}  // namespace

TEST_CASE("events: a stage is filled, read and filled again, phase by phase") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    const Events all = events_of([] { launch(hand_over, dim3(1), dim3(96), 1024, 3); });
    for (int phase = 0; phase < 3; ++phase) {
      for (const int barrier : {0, 1}) {
        const auto arrived = places(all, EventKind::barrier_arrived, barrier, phase);
        REQUIRE(arrived.size() == (barrier == 0 ? 1 : 2));  // a warp is in the list once
        require_order(arrived, places(all, EventKind::barrier_completed, barrier, phase));
      }
      require_order(places(all, EventKind::barrier_completed, 0, phase),
                    places(all, EventKind::barrier_waited, 0, phase));
      // The producer waits for the phase before. Its first wait is for phase -1.
      REQUIRE(places(all, EventKind::barrier_waited, 1, phase - 1).size() == 1);
    }
    require_order(places(all, EventKind::barrier_completed, 1, 0),
                  places(all, EventKind::barrier_waited, 1, 0));
    REQUIRE(places(all, EventKind::barrier_waited, 1, 2).empty());
  }
}

TEST_CASE("events: a named barrier's waits come after its arrivals, turn by turn") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    const Events all = events_of([] { launch(take_turns, dim3(1), dim3(64), 0, 3); });
    REQUIRE(all.size() == 12);
    for (int turn = 0; turn < 3; ++turn) {
      for (const int number : {3, 4}) {
        const auto arrived = places(all, EventKind::named_arrived, number, turn);
        const auto synced = places(all, EventKind::named_synced, number, turn);
        REQUIRE(arrived.size() == 1);
        REQUIRE(synced.size() == 1);
        require_order(arrived, synced);
        REQUIRE(all[synced.front()].warp == (number == 3 ? 0u : 1u));
      }
    }
  }
}

}  // namespace tessera
