// Operations of the emulated NCCL in captured graphs: each launch waits again for all ranks.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nccl.h>

#include "tests/runtime/emulated_device.h"
#include "tests/runtime/emulated_graph.h"
#include "tests/support/waiting.h"

namespace tessera {
namespace {

using Catch::Contains;
using emulation::DeviceOptionsGuard;
using emulation::Progress;
using test::check;
using test::Graph;
using test::Ints;
using test::set;
using test::Stream;
using test::value_of;

/// A rank with a device, a stream and a buffer of two integers. This thread is the host of all ranks.
struct Rank {
  explicit Rank(int index) : device(index) {
    here();
    stream = std::make_unique<Stream>();
    x = std::make_unique<Ints>(2);
  }
  ~Rank() { here(); }
  void here() const { check(cudaSetDevice(device)); }
  cudaStream_t native() const { return *stream; }
  void begin() const {
    here();
    check(cudaStreamBeginCapture(*stream, mode));
  }
  void end() {
    here();
    cudaGraph_t made = nullptr;
    check(cudaStreamEndCapture(*stream, &made));
    graph = std::make_unique<Graph>(made);
  }
  void launch() const {
    here();
    check(cudaGraphLaunch(*graph, *stream));
  }
  int value() const {
    here();
    return value_of(x->data, *stream);
  }

  int device;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Ints> x;
  std::unique_ptr<Graph> graph;
  ncclComm_t comm = nullptr;
};

/// Two ranks and their communicator.
class Ranks {
 public:
  Ranks() {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    for (Rank* const rank : {&first, &second}) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      rank->here();
      ncclCommInitRankConfig(&rank->comm, 2, id, rank->device, &config);
    }
    settle();
  }
  ~Ranks() {
    for (const Rank* rank : {&first, &second}) ncclCommAbort(rank->comm);
    for (Rank* const rank : {&first, &second}) {
      rank->here();
      cudaStreamSynchronize(rank->native());
      rank->graph.reset();
    }
    second.x.reset();
    second.stream.reset();
    first.here();
  }
  /// Waits until both ranks' calls are queued; returns the second's state.
  ncclResult_t settle() const {
    ncclResult_t state = ncclInProgress;
    for (const Rank* rank : {&first, &second}) {
      do ncclCommGetAsyncError(rank->comm, &state);
      while (state == ncclInProgress);
    }
    return state;
  }
  /// A graph of each rank's calls. A call of NCCL is recorded once all ranks have made it, so later
  /// calls are in another part.
  void capture(const std::vector<std::function<void(Rank&)>>& parts) {
    for (Rank* const rank : {&first, &second}) rank->begin();
    for (const auto& part : parts) {
      for (Rank* const rank : {&first, &second}) {
        rank->here();
        part(*rank);
      }
      REQUIRE(settle() == ncclSuccess);
    }
    for (Rank* const rank : {&first, &second}) rank->end();
  }

  Rank first{0}, second{1};
};

void sum(Rank& rank) {
  ncclAllReduce(rank.x->data, rank.x->data, 1, ncclUint32, ncclSum, rank.comm, rank.native());
}

void for_every_progress_of_two(const std::function<void()>& body) {
  for (int seed = 0; seed <= 12; ++seed) {
    const Progress progress = seed == 0   ? Progress::lazy
                              : seed == 1 ? Progress::eager
                                          : Progress::shuffled;
    const DeviceOptionsGuard guard(
        {.progress = progress, .seed = static_cast<std::uint64_t>(seed), .devices = 2});
    body();
  }
}

}  // namespace

TEST_CASE("an all-reduce of two ranks is captured once, and adds the values of every launch") {
  for_every_progress_of_two([] {
    Ranks ranks;
    ranks.capture({sum});
    for (Rank* const rank : {&ranks.first, &ranks.second}) {
      rank->here();
      set(rank->x->data, rank->device + 1, rank->native());
    }
    ranks.first.launch();
    ranks.first.launch();  // a rank may be ahead
    ranks.second.launch();
    ranks.second.launch();
    REQUIRE(ranks.first.value() == 6);
    REQUIRE(ranks.second.value() == 6);
    ranks.second.here();
    set(ranks.second.x->data, 30, ranks.second.native());
    ranks.second.launch();
    ranks.first.launch();
    REQUIRE(ranks.second.value() == 36);
    REQUIRE(ranks.first.value() == 36);
  });
}

TEST_CASE("a captured group of messages swaps values at every launch, between kernels") {
  for_every_progress_of_two([] {
    Ranks ranks;
    const auto increase = [](Rank& rank) {
      emulation::enqueue(rank.native(), [x = rank.x->data] { *x += 1; });
    };
    const auto exchange = [](Rank& rank) {
      const int peer = 1 - rank.device;
      ncclGroupStart();
      ncclSend(rank.x->data, 1, ncclUint32, peer, rank.comm, rank.native());
      ncclRecv(rank.x->data + 1, 1, ncclUint32, peer, rank.comm, rank.native());
      ncclGroupEnd();
    };
    const auto take = [](Rank& rank) {
      emulation::enqueue(rank.native(), [x = rank.x->data] { *x = x[1]; });
    };
    ranks.capture({increase, exchange, take});
    for (Rank* const rank : {&ranks.first, &ranks.second}) {
      rank->here();
      set(rank->x->data, 10 * rank->device, rank->native());
    }
    for (int launch = 1; launch <= 3; ++launch) {
      ranks.second.launch();
      ranks.first.launch();
      const bool swapped = launch % 2 == 1;
      REQUIRE(ranks.first.value() == launch + (swapped ? 10 : 0));
      REQUIRE(ranks.second.value() == launch + (swapped ? 0 : 10));
    }
  });
}

TEST_CASE("an operation of NCCL is one node, and captured and queued ones alternate") {
  const DeviceOptionsGuard two({.devices = 2});
  Ranks ranks;
  ranks.capture({sum});
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(ranks.first.graph->handle, nullptr, &nodes));
  REQUIRE(nodes == 1);
  for (Rank* const rank : {&ranks.first, &ranks.second}) {
    rank->here();
    set(rank->x->data, 1, rank->native());
    rank->launch();
    sum(*rank);
  }
  REQUIRE(ranks.settle() == ncclSuccess);
  for (Rank* const rank : {&ranks.first, &ranks.second}) rank->launch();
  REQUIRE(ranks.first.value() == 8);
  REQUIRE(ranks.second.value() == 8);
}

TEST_CASE("a thread of NCCL's own records a call, whatever the capture's mode") {
  const DeviceOptionsGuard two({.devices = 2});
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    Ranks ranks;
    ranks.first.mode = ranks.second.mode = mode;
    ranks.capture({sum});
    for (Rank* const rank : {&ranks.first, &ranks.second}) {
      rank->here();
      set(rank->x->data, 2, rank->native());
      rank->launch();
    }
    CHECK(ranks.first.value() == 4);
  }
}

// Another thread's questions, as a watcher's, do not mean that the host has waited.
TEST_CASE("a capture that ends before NCCL has recorded a call is refused") {
  const DeviceOptionsGuard two({.devices = 2});
  Ranks ranks;
  for (Rank* const rank : {&ranks.first, &ranks.second}) {
    rank->begin();
    sum(*rank);
  }
  std::thread([&] {
    for (int i = 0; i < 100; ++i) {
      ncclResult_t state = ncclSuccess;
      ncclCommGetAsyncError(ranks.first.comm, &state);
      CHECK(state == ncclInProgress);
      std::this_thread::yield();
    }
  }).join();
  ranks.first.here();
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(ranks.first.native(), &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK_THAT(cudaGetErrorString(cudaErrorStreamCaptureInvalidated),
             Contains("NCCL has not recorded a call: wait until ncclCommGetAsyncError's state"));
  CHECK(ranks.settle() == ncclSuccess);  // the second's
  ncclResult_t state = ncclSuccess;
  ncclCommGetAsyncError(ranks.first.comm, &state);
  CHECK(state == ncclUnhandledCudaError);
  CHECK_THAT(ncclGetLastError(ranks.first.comm), Contains("the capture ended before NCCL"));
  ranks.second.end();
}

TEST_CASE("a call that one rank captures and another queues is refused") {
  const DeviceOptionsGuard two({.devices = 2});
  Ranks ranks;
  ranks.first.begin();
  sum(ranks.first);
  ranks.second.here();
  sum(ranks.second);
  REQUIRE(ranks.settle() == ncclInvalidUsage);
  REQUIRE_THAT(ncclGetLastError(ranks.second.comm), Contains("ranks disagree"));
  ranks.first.end();
}

TEST_CASE("an abort releases a launch that another rank never joins, and later launches fail") {
  const DeviceOptionsGuard two({.devices = 2});
  Ranks ranks;
  ranks.capture({sum});
  ranks.first.launch();
  std::thread aborts([&] {
    test::wait_for("the host waits for the launch",
                   [] { return emulation::waiting_host_threads() == 1; });
    ncclCommAbort(ranks.first.comm);
  });
  ranks.first.here();
  check(cudaStreamSynchronize(ranks.first.native()));
  aborts.join();
  ranks.first.launch();
  REQUIRE(cudaStreamSynchronize(ranks.first.native()) == cudaErrorLaunchFailure);
  REQUIRE_THAT(cudaGetErrorString(cudaErrorLaunchFailure),
               Contains("a graph uses a communicator that was destroyed"));
  emulation::forget_failures();
}

TEST_CASE("a graph of an all-reduce does not outlive its buffer") {
  const DeviceOptionsGuard two({.devices = 2});
  Ranks ranks;
  ranks.capture({sum});
  ranks.first.here();
  ranks.first.x.reset();
  ranks.first.launch();
  ranks.second.launch();
  REQUIRE(cudaStreamSynchronize(ranks.first.native()) == cudaErrorLaunchFailure);
  REQUIRE_THAT(cudaGetErrorString(cudaErrorLaunchFailure), Contains("freed after the capture"));
  cudaStreamSynchronize(ranks.second.native());
  emulation::forget_failures();
}

}  // namespace tessera
