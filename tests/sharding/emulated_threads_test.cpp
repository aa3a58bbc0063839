// Ranks that are threads with an emulated GPU each: the order in which they read each other's memory.
#include <catch2/catch.hpp>

#include "runtime/emulation/toolkit/emulated_device.h"
#include "runtime/emulation/toolkit/peer_copies.h"
#include "sharding/comm/threads/threads.h"
#include "tests/sharding/communicator_checks.h"

namespace tessera {

using test::compute;
using test::tensor_of;

TEST_CASE("threads with a GPU each begin to read at the next rank, so no GPU serves all at once") {
  constexpr int kRanks = 4;
  emulation::DeviceOptions devices = emulation::device_options();
  devices.devices = kRanks;
  const emulation::DeviceOptionsGuard guard(devices);
  const auto sources_of_each = [](const std::function<void(Communicator&)>& call) {
    emulation::PeerCopies copies;
    run_ranks({.ranks = kRanks, .device = {DeviceType::cuda, 0}, .threads = 1}, call);
    std::vector<std::vector<int>> sources(kRanks);
    for (const auto& [from, to] : copies.take()) sources.at(to).push_back(from);
    return sources;
  };
  const auto tensor = [] { return tensor_of(0, kRanks * 8); };
  const std::vector<std::vector<int>> once = {{1, 2, 3}, {2, 3, 0}, {3, 0, 1}, {0, 1, 2}};
  CHECK(sources_of_each([&](Communicator& world) { world.all_gather({tensor()}, compute()); }) ==
        once);
  CHECK(sources_of_each([&](Communicator& world) {
          world.all_to_all({tensor()}, {tensor()}, compute());
        }) == once);
  CHECK(sources_of_each([&](Communicator& world) {
          world.reduce_scatter({tensor_of(0, 8)}, {tensor()}, compute());
        }) == once);
}

}  // namespace tessera
