// The emulated CUDA runtime's captures: a call that a capture does not allow is refused with CUDA's
// error, and invalidates the capture.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>

#include "tests/runtime/emulated_device.h"
#include "tests/runtime/emulated_graph.h"

namespace tessera::test {
namespace {

using Catch::Contains;

cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status));
  return status;
}

/// Ends the capture. The error, or success.
cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  REQUIRE((graph == nullptr) == (error != cudaSuccess));
  if (graph != nullptr) check(cudaGraphDestroy(graph));
  REQUIRE(status_of(stream) == cudaStreamCaptureStatusNone);
  return error;
}

/// `call` in a capture of `stream` returns `error`, with a reason, and invalidates the capture.
void expect_refused(cudaStream_t stream, cudaError_t error, const std::string& why,
                    const std::function<cudaError_t()>& call) {
  INFO(why);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  REQUIRE(status_of(stream) == cudaStreamCaptureStatusActive);
  REQUIRE(call() == error);
  REQUIRE_THAT(cudaGetErrorString(error), Contains(why));
  REQUIRE(status_of(stream) == cudaStreamCaptureStatusInvalidated);
  REQUIRE(cudaMemsetAsync(nullptr, 0, 0, stream) == cudaErrorStreamCaptureInvalidated);
  REQUIRE_THROWS_WITH(emulation::enqueue(stream, [] {}), Contains(why));
  REQUIRE(end(stream) == cudaErrorStreamCaptureInvalidated);
  REQUIRE_THAT(cudaGetErrorString(cudaErrorStreamCaptureInvalidated), Contains(why));
}

class ThreadMode {
 public:
  explicit ThreadMode(cudaStreamCaptureMode mode) : mode_(mode) {
    check(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  ~ThreadMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ThreadMode(const ThreadMode&) = delete;
  ThreadMode& operator=(const ThreadMode&) = delete;
  cudaStreamCaptureMode previous() const { return mode_; }

 private:
  cudaStreamCaptureMode mode_;
};

}  // namespace

TEST_CASE("the host may not wait while a stream captures") {
  const Stream stream, other;
  const Event inside, outside;
  check(cudaEventRecord(outside, other));
  const auto unsupported = cudaErrorStreamCaptureUnsupported;
  expect_refused(stream, unsupported, "cudaStreamSynchronize: the stream captures",
                 [&] { return cudaStreamSynchronize(stream); });
  expect_refused(stream, unsupported, "cudaStreamSynchronize: not while this thread captures",
                 [&] { return cudaStreamSynchronize(other); });
  expect_refused(stream, unsupported, "cudaDeviceSynchronize: a stream of the device captures",
                 [] { return cudaDeviceSynchronize(); });
  expect_refused(stream, unsupported, "cudaEventQuery: not while this thread captures",
                 [&] { return cudaEventQuery(outside); });
  expect_refused(stream, unsupported, "cudaEventSynchronize: not while this thread captures",
                 [&] { return cudaEventSynchronize(outside); });
  for (const auto wait : {cudaEventQuery, cudaEventSynchronize}) {
    expect_refused(stream, cudaErrorCapturedEvent, "the event was recorded in a capture", [&] {
      check(cudaEventRecord(inside, stream));
      return wait(inside);
    });
  }
  REQUIRE(cudaEventQuery(inside) == cudaErrorCapturedEvent);  // also after the end
  check(cudaEventRecord(inside, stream));
  check(cudaEventSynchronize(inside));
}

TEST_CASE(
    "memory is neither allocated nor freed in a capture, unless the thread's mode is relaxed") {
  const Stream stream;
  void* data = nullptr;
  void* host = nullptr;
  const auto refused = [&](const std::string& call, const std::function<cudaError_t()>& body) {
    expect_refused(stream, cudaErrorStreamCaptureUnsupported,
                   call + ": not while this thread captures", body);
  };
  refused("cudaMalloc", [&] { return cudaMalloc(&data, 4); });
  refused("cudaMallocHost", [&] { return cudaMallocHost(&host, 4); });
  check(cudaMalloc(&data, 4));
  check(cudaMallocHost(&host, 4));
  refused("cudaFree", [&] { return cudaFree(data); });
  refused("cudaFreeHost", [&] { return cudaFreeHost(host); });
  {
    const ThreadMode relaxed(cudaStreamCaptureModeRelaxed);
    REQUIRE(relaxed.previous() == cudaStreamCaptureModeGlobal);
    const Graph graph = capture(stream, [&] {
      check(cudaFree(data));
      check(cudaMalloc(&data, 4));
      check(cudaMemsetAsync(data, 0, 4, stream));
    });
    check(cudaGraphLaunch(graph, stream));
    check(cudaStreamSynchronize(stream));
  }
  const Graph graph = capture(
      stream, [&] { check(cudaFree(data)); }, cudaStreamCaptureModeRelaxed);
  check(cudaFreeHost(host));
}

TEST_CASE("a capture's mode decides which other threads may allocate") {
  const auto other_thread = [](cudaStreamCaptureMode capture_mode, cudaStreamCaptureMode mode) {
    const Stream stream;
    check(cudaStreamBeginCapture(stream, capture_mode));
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      cudaThreadExchangeStreamCaptureMode(&mode);
      void* data = nullptr;
      error = cudaMalloc(&data, 4);
      if (error == cudaSuccess) error = cudaFree(data);
    }).join();
    REQUIRE(end(stream) ==
            (error == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
    return error;
  };
  const auto global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
             relaxed = cudaStreamCaptureModeRelaxed;
  REQUIRE(other_thread(global, global) == cudaErrorStreamCaptureUnsupported);
  REQUIRE_THAT(cudaGetErrorString(cudaErrorStreamCaptureInvalidated),
               Contains("cudaMalloc: not while another thread captures"));
  for (const auto mode : {local, relaxed}) REQUIRE(other_thread(global, mode) == cudaSuccess);
  for (const auto mode : {global, local, relaxed}) {
    REQUIRE(other_thread(local, mode) == cudaSuccess);
    REQUIRE(other_thread(relaxed, mode) == cudaSuccess);
  }
  auto none = static_cast<cudaStreamCaptureMode>(3);
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&none) == cudaErrorInvalidValue);
}

TEST_CASE("a capture takes no pageable memory of the host") {
  const Stream stream;
  const Ints device(1);
  int pageable = 0;
  for (const bool from_host : {true, false}) {
    expect_refused(stream, cudaErrorStreamCaptureUnsupported, "no pageable memory", [&] {
      void* const to = from_host ? device.data : &pageable;
      void* const from = from_host ? &pageable : device.data;
      return cudaMemcpyAsync(to, from, 4, cudaMemcpyDefault, stream);
    });
  }
}

TEST_CASE("a capture depends on no work outside, and on no other capture") {
  const Stream stream, other;
  const Event event;
  check(cudaStreamWaitEvent(stream, event, 0));  // never recorded
  check(cudaEventRecord(event, other));
  expect_refused(stream, cudaErrorStreamCaptureIsolation, "recorded outside the capture",
                 [&] { return cudaStreamWaitEvent(stream, event, 0); });

  check(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
  check(cudaEventRecord(event, other));
  expect_refused(stream, cudaErrorStreamCaptureMerge, "streams of two captures",
                 [&] { return cudaStreamWaitEvent(stream, event, 0); });
  REQUIRE(end(other) == cudaErrorStreamCaptureInvalidated);
  REQUIRE(cudaStreamWaitEvent(stream, event, 0) == cudaErrorCapturedEvent);
}

TEST_CASE("a fork with work must be joined before the end") {
  const Stream stream, side;
  const Event forked, joined;
  const Ints x(1);
  const auto fork = [&] {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    check(cudaEventRecord(forked, stream));
    check(cudaStreamWaitEvent(side, forked, 0));
    REQUIRE(status_of(side) == cudaStreamCaptureStatusActive);
  };
  fork();
  check(cudaMemsetAsync(x.data, 0, 4, side));
  check(cudaEventRecord(joined, side));
  check(cudaStreamWaitEvent(stream, joined, 0));
  REQUIRE(end(stream) == cudaSuccess);
  fork();
  check(cudaMemsetAsync(x.data, 0, 4, side));
  REQUIRE(end(stream) == cudaErrorStreamCaptureUnjoined);
  REQUIRE(status_of(side) == cudaStreamCaptureStatusNone);
  fork();
  check(cudaMemsetAsync(x.data, 0, 4, side));
  check(cudaEventRecord(joined, side));
  check(cudaStreamWaitEvent(stream, joined, 0));
  check(cudaMemsetAsync(x.data, 0, 4, side));  // after the join
  REQUIRE(end(stream) == cudaErrorStreamCaptureUnjoined);
  set(x.data, 4, side);
  REQUIRE(value_of(x.data, side) == 4);
}

TEST_CASE("a capture begins once and ends where and in the thread where it began") {
  const Stream stream, side;
  const Event event;
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) ==
          cudaErrorIllegalState);
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = cudaStreamEndCapture(stream, &graph); }).join();
  REQUIRE(elsewhere == cudaErrorStreamCaptureWrongThread);
  check(cudaEventRecord(event, stream));
  check(cudaStreamWaitEvent(side, event, 0));
  REQUIRE(cudaStreamEndCapture(side, &graph) == cudaErrorStreamCaptureUnmatched);
  REQUIRE(end(stream) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("a graph is launched outside of captures, and a capture does not survive its stream") {
  const Stream stream;
  const Graph graph = capture(stream, [] {});
  expect_refused(stream, cudaErrorStreamCaptureUnsupported, "cudaGraphLaunch: the stream captures",
                 [&] { return cudaGraphLaunch(graph, stream); });
  cudaStream_t gone = nullptr;
  check(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
  check(cudaStreamBeginCapture(gone, cudaStreamCaptureModeGlobal));
  check(cudaStreamDestroy(gone));
  check(cudaStreamSynchronize(stream));  // nothing captures any more
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph.handle, 1) == cudaErrorInvalidValue);
  REQUIRE(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) ==
          cudaErrorInvalidResourceHandle);
}

}  // namespace tessera::test
