// Calls of the emulated CUDA runtime that may wait for linked GPUs, while a collective of NCCL there waits
// for this GPU. This thread is the host of all ranks.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include "tests/runtime/emulated_device.h"

namespace tessera::test {
namespace {

using Catch::Contains;
using emulation::DeviceOptionsGuard;

/// Ranks with a GPU each, and their communicator.
class Ranks {
 public:
  explicit Ranks(int count) : guard_({.devices = count}) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < count; ++rank) {
      select(rank);
      streams_.push_back(std::make_unique<Stream>());
      values_.push_back(std::make_unique<Ints>(2));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclCommInitRankConfig(&comms_.emplace_back(), count, id, rank, &config);
    }
    settle();
  }
  ~Ranks() {
    end();
    for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
      select(static_cast<int>(rank));
      cudaStreamSynchronize(*streams_[rank]);
    }
    select(0);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Later calls are on the rank's GPU.
  static void select(int rank) { check(cudaSetDevice(rank)); }
  void link(int rank, int peer) const {
    select(rank);
    check(cudaDeviceEnablePeerAccess(peer, 0));
  }
  void add(int rank) const {
    select(rank);
    int* const x = values_[at(rank)]->data;
    ncclAllReduce(x, x, 1, ncclUint32, ncclSum, comms_[at(rank)], *streams_[at(rank)]);
  }
  void send(int rank, int peer) const {
    select(rank);
    ncclSend(values_[at(rank)]->data, 1, ncclUint32, peer, comms_[at(rank)], *streams_[at(rank)]);
  }
  /// Waits until the calls of all ranks are queued.
  void settle() const {
    for (const ncclComm_t comm : comms_) {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
    }
  }
  /// Aborts the communicator.
  void end() {
    for (const ncclComm_t comm : comms_) ncclCommAbort(comm);
    comms_.clear();
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  DeviceOptionsGuard guard_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Ints>> values_;
  std::vector<ncclComm_t> comms_;
};

/// Whether a block can be had on the current GPU, and given back.
bool allocates() {
  void* data = nullptr;
  if (cudaMalloc(&data, 4) != cudaSuccess) return false;
  check(cudaFree(data));
  return true;
}

}  // namespace

TEST_CASE("a call that waits for a linked GPU whose collective waits for this one is refused") {
  Ranks ranks(2);
  ranks.link(1, 0);
  void *device = nullptr, *host = nullptr;
  Ranks::select(1);
  check(cudaMalloc(&device, 4));
  check(cudaMallocHost(&host, 4));
  ranks.add(0);
  Ranks::select(1);
  void* more = nullptr;
  const std::vector<std::pair<std::string, std::function<cudaError_t()>>> calls = {
      {"cudaMalloc", [&] { return cudaMalloc(&more, 4); }},
      {"cudaFree", [&] { return cudaFree(device); }},
      {"cudaMallocHost", [&] { return cudaMallocHost(&more, 4); }},
      {"cudaFreeHost", [&] { return cudaFreeHost(host); }}};
  for (const auto& [name, call] : calls) {
    const cudaError_t error = call();
    CHECK(error == cudaErrorIllegalState);
    CHECK_THAT(cudaGetErrorString(error),
               Contains(name + " on GPU 1 waits for the kernels of GPU 0") &&
                   Contains("there ncclAllReduce of rank 0 waits for this rank's launch"));
  }
  ranks.add(1);
  ranks.settle();
  Ranks::select(1);
  for (const auto& call : {calls[1], calls[3]}) check(call.second());
  CHECK(allocates());
}

TEST_CASE(
    "no GPU is waited for that is not linked, in either direction, or whose ranks have all come") {
  Ranks ranks(3);
  ranks.link(0, 1);
  ranks.add(0);
  Ranks::select(2);
  CHECK(allocates());  // not linked
  Ranks::select(0);
  CHECK(allocates());  // its own collective waits for others
  Ranks::select(1);
  CHECK_FALSE(allocates());  // the link is the other GPU's
  ranks.add(2);
  Ranks::select(1);
  CHECK_FALSE(allocates());
  ranks.add(1);
  Ranks::select(1);
  CHECK(allocates());
  ranks.settle();
}

TEST_CASE("a message keeps its receiver waiting, and no other rank") {
  Ranks ranks(3);
  for (const int rank : {1, 2}) ranks.link(rank, 0);
  ranks.send(0, 1);
  Ranks::select(2);
  CHECK(allocates());
  Ranks::select(1);
  void* data = nullptr;
  REQUIRE(cudaMalloc(&data, 4) == cudaErrorIllegalState);
  CHECK_THAT(cudaGetErrorString(cudaErrorIllegalState), Contains("there ncclSend of rank 0"));
  ranks.end();
  Ranks::select(1);
  CHECK(allocates());  // an abort ends the message
}

}  // namespace tessera::test
