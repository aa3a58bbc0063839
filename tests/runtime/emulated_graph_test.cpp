// The emulated CUDA runtime's graphs: work that is captured runs at every launch, in any order that its
// dependencies allow.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/emulation/toolkit/host_calls.h"
#include "tests/runtime/emulated_device.h"
#include "tests/runtime/emulated_graph.h"
#include "tests/support/progress.h"

namespace tessera::test {
namespace {

using Catch::Contains;
using emulation::DeviceOptionsGuard;
using emulation::Progress;

/// `later` waits for the work that `earlier` has.
void wait(cudaStream_t later, cudaStream_t earlier) {
  const Event event(cudaEventDisableTiming);
  check(cudaEventRecord(event, earlier));
  check(cudaStreamWaitEvent(later, event, 0));
}

}  // namespace

TEST_CASE("a capture runs nothing, and every launch runs all of it, with the inputs of that time") {
  for_every_progress(5, [] {
    const Stream stream;
    const Ints x(1), y(1), input(1, /*on_host=*/true), output(1, /*on_host=*/true);
    *input.data = 5;
    check(cudaMemsetAsync(y.data, 0, 4, stream));
    const Graph graph = capture(stream, [&] {
      copy(x.data, input.data, 1, stream);
      add(y.data, x.data, stream);
      copy(output.data, y.data, 1, stream);
    });
    REQUIRE(value_of(y.data, stream) == 0);
    check(cudaGraphLaunch(graph, stream));
    check(cudaStreamSynchronize(stream));
    REQUIRE(*output.data == 5);
    *input.data = 7;
    check(cudaGraphLaunch(graph, stream));
    check(cudaGraphLaunch(graph, stream));
    check(cudaStreamSynchronize(stream));
    REQUIRE(*output.data == 19);
  });
}

TEST_CASE("a launch comes after the stream's earlier work and before its later work") {
  for_every_progress(10, [] {
    const Stream stream;
    const Ints x(1), y(1);
    check(cudaMemsetAsync(y.data, 0, 4, stream));
    const Graph graph = capture(stream, [&] { add(y.data, x.data, stream); });
    set(x.data, 1, stream);
    check(cudaGraphLaunch(graph, stream));
    set(x.data, 20, stream);
    check(cudaGraphLaunch(graph, stream));
    set(x.data, 300, stream);
    REQUIRE(value_of(y.data, stream) == 21);
  });
}

TEST_CASE("a stream that waits for an event of the capture is captured until it is joined") {
  for_every_progress(20, [] {
    const Stream origin, side;
    const Ints x(1), y(1), z(1);
    const Graph graph = capture(origin, [&] {
      set(x.data, 3, origin);
      wait(side, origin);
      copy(y.data, x.data, 1, side);
      check(cudaMemsetAsync(x.data, 0, 4, side));  // only the origin's later work waits for it
      wait(origin, side);
      copy(z.data, x.data, 1, origin);
    });
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    check(cudaStreamIsCapturing(side, &status));
    REQUIRE(status == cudaStreamCaptureStatusNone);
    for (int i = 0; i < 2; ++i) {
      check(cudaGraphLaunch(graph, origin));
      REQUIRE(value_of(z.data, origin) == 0);
      REQUIRE(value_of(y.data, origin) == 3);
      set(y.data, 0, origin);
    }
  });
}

TEST_CASE("a missing dependency of a graph shows under some seed") {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const DeviceOptionsGuard shuffled({.progress = Progress::shuffled, .seed = seed});
    const Stream origin, side;
    const Ints x(1), y(1);
    const Graph graph = capture(origin, [&] {
      set(x.data, 1, origin);
      wait(side, origin);
      set(x.data, 2, side);
      copy(y.data, x.data, 1, origin);  // no wait for the side
      wait(origin, side);
    });
    check(cudaGraphLaunch(graph, origin));
    early += value_of(y.data, origin) == 1;
  }
  REQUIRE(early > 5);
  REQUIRE(early < 35);
}

TEST_CASE("launches of one executable graph come one after another, also in two streams") {
  for_every_progress(20, [] {
    const Stream origin, side, other;
    const Ints x(1), one(1), sum(1);
    check(cudaMemsetAsync(x.data, 0, 4, origin));
    check(cudaMemsetAsync(sum.data, 0, 4, origin));
    set(one.data, 1, origin);
    const Graph graph = capture(origin, [&] {
      wait(side, origin);
      add(x.data, one.data, side);  // would overtake the last node of an earlier launch
      wait(origin, side);
      add(sum.data, x.data, origin);
    });
    for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(graph, i % 2 == 0 ? origin : other));
    check(cudaDeviceSynchronize());
    REQUIRE(value_of(sum.data, origin) == 1 + 2 + 3);
  });
}

TEST_CASE("a graph's nodes are its launches, copies, fills and functions of the host") {
  const Stream origin, side;
  const Ints x(2), y(1);
  int calls = 0;
  const auto count = [](void* calls) { ++*static_cast<int*>(calls); };
  const Graph graph = capture(origin, [&] {
    set(x.data, 3, origin);
    copy(x.data + 1, x.data, 1, origin);
    wait(side, origin);  // an event is no node
    check(cudaMemsetAsync(y.data, 0, 4, side));
    emulation::mark_used(side, y.data, 4, 4);  // nor is a mark
    wait(origin, side);
    check(cudaLaunchHostFunc(origin, count, &calls));
  });
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(graph.handle, nullptr, &nodes));
  REQUIRE(nodes == 4);
  std::vector<cudaGraphNode_t> list(6);
  nodes = list.size();
  check(cudaGraphGetNodes(graph.handle, list.data(), &nodes));
  REQUIRE(nodes == 4);
  REQUIRE(list[3] != nullptr);
  REQUIRE(list[4] == nullptr);
  check(cudaGraphUpload(graph, origin));
  for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(graph, origin));
  REQUIRE(calls == 0);
  check(cudaStreamSynchronize(origin));
  REQUIRE(calls == 3);
}

TEST_CASE("a launch of a graph is one call of the host, and all its launches are listed") {
  const Stream stream;
  const Ints x(2);
  const Graph graph = capture(stream, [&] {
    check(cudaMemsetAsync(x.data, 0, 4, stream));
    copy(x.data + 1, x.data, 1, stream);
  });
  const std::uint64_t calls = emulation::host_calls(), waits = emulation::host_waits();
  const std::uint64_t graphs = emulation::host_calls_by_kind().graphs;
  emulation::start_launch_list();
  check(cudaGraphLaunch(graph, stream));
  check(cudaGraphLaunch(graph, stream));
  check(cudaStreamSynchronize(stream));
  REQUIRE(emulation::host_calls() == calls + 2);
  REQUIRE(emulation::host_calls_by_kind().graphs == graphs + 2);
  REQUIRE(emulation::host_waits() == waits + 1);
  std::vector<std::string> names;
  for (const auto& launch : emulation::take_launch_list()) names.push_back(launch.kernel);
  REQUIRE(names == std::vector<std::string>{"cudaMemsetAsync", "cudaMemcpyAsync", "cudaMemsetAsync",
                                            "cudaMemcpyAsync"});
}

TEST_CASE("a graph runs on after the handles are destroyed, and streams are no part of it") {
  const Ints x(1), y(1);
  const Stream stream;
  check(cudaMemsetAsync(x.data, 0, 4, stream));
  {
    const Stream origin, side;
    const Graph graph = capture(origin, [&] {
      wait(side, origin);
      set(y.data, 4, side);
      wait(origin, side);
      add(x.data, y.data, origin);
    });
    check(cudaGraphLaunch(graph, stream));
  }
  REQUIRE(value_of(x.data, stream) == 4);
  REQUIRE(cudaGraphLaunch(nullptr, stream) == cudaErrorInvalidValue);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, nullptr, 0) == cudaErrorInvalidValue);
}

TEST_CASE("marks of memory in use are part of the graph") {
  const Stream stream;
  const Ints x(2), y(1);
  const Graph graph = capture(stream, [&] {
    emulation::mark_used(stream, x.data, 4, 8);
    set(x.data, 6, stream);
    copy(y.data, x.data, 1, stream);
    emulation::mark_unused(stream, x.data, 8);
  });
  emulation::mark_unused(stream, x.data, 8);
  for (int i = 0; i < 2; ++i) {
    check(cudaGraphLaunch(graph, stream));
    REQUIRE(value_of(y.data, stream) == 6);
    emulation::mark_used(stream, x.data, 8, 8);
    REQUIRE(value_of(x.data, stream) == -1);
  }
}

TEST_CASE(
    "a graph that uses freed memory fails at its launch, by copies and by kernels' parameters") {
  const Stream stream;
  const Ints kept(1), pinned(1, /*on_host=*/true);
  using Capture = std::function<void(int* freed)>;
  const Capture captures[] = {
      [&](int* freed) { copy(kept.data, freed, 1, stream); },
      [&](int* freed) { check(cudaMemsetAsync(freed, 0, 4, stream)); },
      [&](int* freed) {
        emulation::enqueue(stream, [=] { ++*freed; }, {3, reinterpret_cast<std::uintptr_t>(freed)});
      }};
  for (const Capture& body : captures) {
    int* block = nullptr;
    check(cudaMalloc(reinterpret_cast<void**>(&block), 4));
    const Graph graph = capture(stream, [&] { body(block); });
    check(cudaGraphLaunch(graph, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaFree(block));
    check(cudaGraphLaunch(graph, stream));
    REQUIRE(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
    REQUIRE_THAT(cudaGetErrorString(cudaErrorLaunchFailure),
                 Contains("a graph uses device memory that was freed after the capture"));
    emulation::forget_failures();
  }
}

TEST_CASE("graphs that are not destroyed are leaks") {
  const Stream stream;
  const Graph graph = capture(stream, [] {});
  REQUIRE_THAT(emulation::leaks(), Contains("2 graphs"));
}

}  // namespace tessera::test
