// Captured graphs as objects, for the tests of the emulated CUDA runtime.
#pragma once

#include <utility>

#include "tests/runtime/emulated_device.h"

namespace tessera::test {

/// A graph and its executable.
struct Graph {
  cudaGraph_t handle = nullptr;
  cudaGraphExec_t executable = nullptr;

  explicit Graph(cudaGraph_t graph) : handle(graph) {
    check(cudaGraphInstantiate(&executable, graph, 0));
  }
  ~Graph() {
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(handle);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  operator cudaGraphExec_t() const { return executable; }
};

/// The graph of the work that `body` gives to `stream` and to streams that it joins.
template <typename Body>
Graph capture(cudaStream_t stream, const Body& body,
              cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  check(cudaStreamBeginCapture(stream, mode));
  body();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph));
  return Graph(graph);
}

/// sum += x.
inline void add(int* sum, const int* x, cudaStream_t stream) {
  emulation::enqueue(stream, [=] { *sum += *x; });
}

}  // namespace tessera::test
