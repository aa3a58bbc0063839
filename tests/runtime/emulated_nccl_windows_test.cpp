// Memory that ranks register with communicators of the emulated NCCL: what it takes, and what it refuses.
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nccl.h>
#include <nccl_device.h>

#include "tests/runtime/emulated_device.h"
#include "tests/runtime/emulated_nccl.h"

namespace tessera {
namespace {

using test::check;
using test::settled;
using test::Stream;

constexpr int kRanks = 2;
constexpr std::size_t kBytes = 64 * sizeof(int);

/// Two ranks with a GPU each, their communicators and memory. This thread is the host of both.
class World {
 public:
  World() : guard_(with_devices()) {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int r = 0; r < kRanks; ++r) {
      check(cudaSetDevice(r));
      ncclCommInitRankConfig(&comms[r], kRanks, id, r, &config);
      REQUIRE(ncclMemAlloc(&memory[r], kBytes) == ncclSuccess);
    }
    for (const ncclComm_t comm : comms) REQUIRE(settled(comm) == ncclSuccess);
  }
  ~World() {
    for (const ncclComm_t comm : comms) ncclCommAbort(comm);
    for (int r = 0; r < kRanks; ++r) {
      cudaSetDevice(r);
      cudaDeviceSynchronize();
      if (memory[r] != nullptr) ncclMemFree(memory[r]);
    }
    cudaSetDevice(0);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Registers the ranks' memory. Returns rank 1's state.
  ncclResult_t register_all(std::size_t of_last = kBytes) {
    for (int r = 0; r < kRanks; ++r) {
      const std::size_t bytes = r == kRanks - 1 ? of_last : kBytes;
      const ncclResult_t status =
          ncclCommWindowRegister(comms[r], memory[r], bytes, &windows[r], NCCL_WIN_COLL_SYMMETRIC);
      if (status != ncclInProgress) return status;
    }
    settled(comms[0]);
    return settled(comms[1]);
  }
  /// The error of the last refused call.
  std::string refusal(ncclResult_t status) const {
    CHECK(status != ncclSuccess);
    CHECK(status != ncclInProgress);
    return ncclGetLastError(nullptr);
  }

  std::vector<ncclComm_t> comms = std::vector<ncclComm_t>(kRanks);
  std::vector<void*> memory = std::vector<void*>(kRanks);
  std::vector<ncclWindow_t> windows = std::vector<ncclWindow_t>(kRanks);

 private:
  static emulation::DeviceOptions with_devices() {
    emulation::DeviceOptions options = emulation::device_options();
    options.devices = kRanks;
    return options;
  }
  emulation::DeviceOptionsGuard guard_;
};

/// Runs a kernel with these addresses as parameters.
cudaError_t run(cudaStream_t stream, const std::function<void()>& kernel,
                const std::vector<const void*>& parameters) {
  std::vector<std::uintptr_t> words;
  for (const void* word : parameters) words.push_back(reinterpret_cast<std::uintptr_t>(word));
  emulation::enqueue(stream, kernel, words);
  return cudaStreamSynchronize(stream);
}

}  // namespace

TEST_CASE("emulated NCCL: a kernel reads a peer's memory through its window, and only there") {
  World world;
  REQUIRE(world.register_all() == ncclSuccess);
  CHECK(ncclTeamLsa(world.comms[1]).nRanks == kRanks);
  CHECK(ncclTeamLsa(world.comms[1]).rank == 1);
  check(cudaSetDevice(1));
  auto* const theirs = static_cast<int*>(world.memory[1]);
  const Stream second;
  check(run(second, [=] { theirs[1] = 7; }, {theirs}));
  check(cudaSetDevice(0));
  auto* const mine = static_cast<int*>(world.memory[0]);
  const Stream first;
  void* address = nullptr;
  const auto find = [&](int peer) {
    return [&address, peer, window = world.windows[0]] {
      address = ncclGetLsaPointer(window, sizeof(int), peer);
    };
  };
  check(run(first, find(1), {}));
  REQUIRE(address == theirs + 1);
  check(run(first, [=] { mine[0] = theirs[1]; }, {mine, address}));
  CHECK(test::value_of(mine, first) == 7);
  CHECK(run(first, find(kRanks), {}) == cudaErrorLaunchFailure);
  emulation::forget_failures();
  REQUIRE(ncclCommWindowDeregister(world.comms[0], world.windows[0]) == ncclSuccess);
  CHECK(run(first, find(1), {}) == cudaErrorLaunchFailure);
  emulation::forget_failures();
}

TEST_CASE("emulated NCCL: only memory of ncclMemAlloc is registered, once, and symmetric") {
  World world;
  void* other = nullptr;
  check(cudaSetDevice(0));
  check(cudaMalloc(&other, kBytes));
  ncclWindow_t window = nullptr;
  const auto refusal = [&](void* data, std::size_t bytes, int flags) {
    return world.refusal(ncclCommWindowRegister(world.comms[0], data, bytes, &window, flags));
  };
  CHECK(refusal(other, kBytes, NCCL_WIN_COLL_SYMMETRIC) == "the memory is not of ncclMemAlloc");
  CHECK(refusal(world.memory[0], std::size_t{4} << 20, NCCL_WIN_COLL_SYMMETRIC) ==
        "the memory is not of ncclMemAlloc");
  CHECK(refusal(world.memory[0], kBytes, 0) == "windows that are not symmetric are not emulated");
  REQUIRE(world.register_all() == ncclSuccess);
  CHECK(refusal(world.memory[0], kBytes, NCCL_WIN_COLL_SYMMETRIC) ==
        "the memory is registered already");
  CHECK(world.refusal(ncclMemFree(other)) == "the memory is not of ncclMemAlloc");
  check(cudaFree(other));
}

TEST_CASE("emulated NCCL: ranks register equally many bytes") {
  World world;
  CHECK(world.register_all(kBytes / 2) == ncclInvalidUsage);
}

TEST_CASE("emulated NCCL: a window ends before its memory and its communicator, and once") {
  World world;
  REQUIRE(world.register_all() == ncclSuccess);
  CHECK(world.refusal(ncclMemFree(world.memory[0])) == "the memory is registered");
  CHECK(world.refusal(ncclCommFinalize(world.comms[0])) ==
        "windows of the communicator are registered");
  const std::string none = "the communicator has no such window";
  CHECK(world.refusal(ncclCommWindowDeregister(world.comms[1], world.windows[0])) == none);
  REQUIRE(ncclCommWindowDeregister(world.comms[0], world.windows[0]) == ncclSuccess);
  CHECK(world.refusal(ncclCommWindowDeregister(world.comms[0], world.windows[0])) == none);
  check(cudaSetDevice(0));
  CHECK(cudaFree(world.memory[0]) == cudaErrorInvalidValue);
  CHECK(ncclMemFree(world.memory[0]) == ncclSuccess);
  world.memory[0] = nullptr;
}

TEST_CASE("emulated NCCL: memory is not freed while its device has work") {
  emulation::DeviceOptions lazy = emulation::device_options();
  lazy.progress = emulation::Progress::lazy;
  const emulation::DeviceOptionsGuard guard(lazy);
  World world;
  check(cudaSetDevice(0));
  const Stream stream;
  check(cudaMemsetAsync(world.memory[0], 0, kBytes, stream));
  CHECK(world.refusal(ncclMemFree(world.memory[0])) == "the memory's device has work");
  check(cudaStreamSynchronize(stream));
}

TEST_CASE("emulated NCCL: ranks gather into windows at one offset") {
  World world;
  REQUIRE(world.register_all() == ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    check(cudaSetDevice(r));
    const Stream stream;
    auto* const whole = static_cast<std::byte*>(world.memory[r]) + 16 * r;
    REQUIRE(ncclAllGather(whole + 16 * r, whole, 16, ncclUint8, world.comms[r], stream) ==
            ncclInProgress);
    if (r == 0) continue;
    CHECK(settled(world.comms[r]) == ncclInvalidUsage);
  }
}

}  // namespace tessera
