// Communicators of the emulated NCCL that are split off from others.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include <nccl.h>

#include "runtime/emulation/toolkit/nccl_model.h"
#include "tests/runtime/emulated_device.h"
#include "tests/runtime/emulated_nccl.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::check;
using test::Ints;
using test::settled;
using test::Stream;

constexpr int kRanks = 4;

/// Four ranks with a GPU each, and their communicators. This thread is the host of all.
class World {
 public:
  explicit World(int split_share = 1) : guard_(with_devices()) {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = split_share;
    for (int r = 0; r < kRanks; ++r) {
      check(cudaSetDevice(r));
      ncclCommInitRankConfig(&comms[r], kRanks, id, r, &config);
    }
    for (const ncclComm_t comm : comms) REQUIRE(settled(comm) == ncclSuccess);
  }
  ~World() {
    for (const auto& all : {children, comms}) {
      for (const ncclComm_t comm : all) {
        if (comm != nullptr) ncclCommAbort(comm);
      }
    }
    cudaSetDevice(0);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Splits by each rank's color and key. Returns the state of rank 0.
  ncclResult_t split(const std::vector<int>& colors, const std::vector<int>& keys) {
    for (int r = 0; r < kRanks; ++r) {
      REQUIRE(ncclCommSplit(comms[r], colors[r], keys[r], &children[r], nullptr) == ncclInProgress);
    }
    for (const ncclComm_t comm : comms) settled(comm);
    return settled(comms[0]);
  }

  std::vector<ncclComm_t> comms = std::vector<ncclComm_t>(kRanks);
  std::vector<ncclComm_t> children = std::vector<ncclComm_t>(kRanks);

 private:
  static emulation::DeviceOptions with_devices() {
    emulation::DeviceOptions options = emulation::device_options();
    options.devices = kRanks;
    return options;
  }
  emulation::DeviceOptionsGuard guard_;
};

/// Three integers of a device, and a stream.
struct Buffer {
  explicit Buffer(int device) : device((cudaSetDevice(device), device)) {}
  ~Buffer() {
    cudaSetDevice(device);
    cudaStreamSynchronize(stream);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int device;
  Stream stream;
  Ints x{3};
};

}  // namespace

TEST_CASE("nccl: a split has a communicator for each color, with the ranks in the order of keys") {
  World world;
  REQUIRE(world.split({0, 7, 7, NCCL_SPLIT_NOCOLOR}, {0, 5, 3, 0}) == ncclSuccess);
  CHECK(world.children[3] == nullptr);
  // Rank 2 comes before rank 1.
  Buffer first(1), second(2);
  for (const Buffer* const rank : {&first, &second}) {
    check(cudaSetDevice(rank->device));
    test::set(rank->x.data, 10 * rank->device, rank->stream);
    ncclAllGather(rank->x.data, rank->x.data + 1, 1, ncclUint32, world.children[rank->device],
                  rank->stream);
  }
  REQUIRE(settled(world.children[1]) == ncclSuccess);
  REQUIRE(settled(world.children[2]) == ncclSuccess);
  check(cudaSetDevice(1));
  CHECK(test::value_of(first.x.data + 1, first.stream) == 20);
  CHECK(test::value_of(first.x.data + 2, first.stream) == 10);
}

TEST_CASE("nccl: children share their parent's resources only with splitShare") {
  for (const int share : {0, 1}) {
    const std::uint64_t before = emulation::nccl_resources();
    World world(share);
    REQUIRE(world.split({0, 0, 1, 1}, {0, 1, 2, 3}) == ncclSuccess);
    CHECK(emulation::nccl_resources() - before == (share == 1 ? kRanks : 2 * kRanks));
  }
}

TEST_CASE("nccl: ranks that split and call in different orders get an error") {
  World world;
  check(cudaSetDevice(0));
  const Stream stream;
  const Ints x(1);
  ncclAllReduce(x.data, x.data, 1, ncclUint32, ncclSum, world.comms[0], stream);
  for (const int r : {1, 2, 3}) ncclCommSplit(world.comms[r], 0, r, &world.children[r], nullptr);
  for (const ncclComm_t comm : world.comms) CHECK(settled(comm) == ncclInvalidUsage);
  CHECK_THAT(ncclGetLastError(world.comms[0]), Contains("disagree"));
}

TEST_CASE("nccl: a communicator does not split before its calls have ended") {
  World world;
  check(cudaSetDevice(0));
  const Stream stream;
  const Ints x(1);
  ncclBroadcast(x.data, x.data, 1, ncclUint32, 0, world.comms[0], stream);
  std::vector<std::unique_ptr<Buffer>> others;
  for (const int r : {1, 2, 3}) {
    const Buffer& own = *others.emplace_back(std::make_unique<Buffer>(r));
    ncclBroadcast(own.x.data, own.x.data, 1, ncclUint32, 0, world.comms[r], own.stream);
  }
  for (const ncclComm_t comm : world.comms) REQUIRE(settled(comm) == ncclSuccess);
  CHECK(ncclCommSplit(world.comms[0], 0, 0, &world.children[0], nullptr) == ncclInvalidUsage);
  CHECK_THAT(ncclGetLastError(nullptr), Contains("have not ended"));
  others.clear();
  check(cudaSetDevice(0));
  check(cudaStreamSynchronize(stream));
  CHECK(world.split({0, 0, 0, 0}, {0, 1, 2, 3}) == ncclSuccess);
}

TEST_CASE("nccl: a communicator takes no calls while it splits") {
  World world;
  REQUIRE(ncclCommSplit(world.comms[0], 0, 0, &world.children[0], nullptr) == ncclInProgress);
  CHECK(ncclCommSplit(world.comms[0], 0, 0, &world.children[0], nullptr) == ncclInvalidUsage);
  CHECK(ncclCommFinalize(world.comms[0]) == ncclInvalidUsage);
  CHECK_THAT(ncclGetLastError(nullptr), Contains("busy"));
}

TEST_CASE("nccl: a split refuses negative colors and a configuration of its own") {
  World world;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(ncclCommSplit(world.comms[0], -2, 0, &world.children[0], nullptr) == ncclInvalidArgument);
  CHECK(ncclCommSplit(world.comms[0], 0, 0, &world.children[0], &config) == ncclInvalidUsage);
}

}  // namespace tessera
