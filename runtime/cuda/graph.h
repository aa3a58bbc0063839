// Graph: device work that is recorded once and launched many times (CUDA graphs).
//
//   cuda::Graph graph({communication_stream()}, [&] { /* queues a step's work */ });
//   graph.launch();    // the step
//   graph.launch();    // the next step
//
// The graph begins on the compute stream, forks to the side streams and joins them:
//
//   compute        --+-- forward -- ... -- reduced? -- update --+--
//                     \                     /                  /
//   communication      +-------- reduce ---+------------------+
//
// So a launch comes after all earlier work of these streams and before all later work. The host's code
// runs in the capture only: before_every_launch (runtime/capture.h) repeats its accounts, and StepValues
// gives kernels the numbers of the step. Addresses are those of the capture. Memory that the capture
// allocates is a GraphPool; other tensors that the work uses must outlive the graph.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/capture.h"
#include "runtime/graph_pool.h"
#include "runtime/stream.h"

struct CUgraph_st;
struct CUgraphExec_st;

namespace tessera::cuda {

class Graph {
 public:
  /// Waits for the device, then records the work that `queue` queues on the compute stream and on
  /// `sides`. Nothing of it runs. Raises Error if the work cannot be recorded, as where the host would
  /// wait for the device.
  Graph(std::vector<Stream> sides, const std::function<void()>& queue);
  /// Waits for the launches.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Queues the graph. The host does not wait. The launch before must have ended: the values of the
  /// step are overwritten.
  void launch();
  /// Kernels, copies and collectives.
  std::size_t nodes() const;

 private:
  void record(const std::function<void()>& queue);

  std::vector<Stream> sides_;
  /// The memory of the device, and of the host for copies.
  std::unique_ptr<GraphPool> device_pool_, host_pool_;
  CaptureScope::HostWork host_work_;
  CUgraph_st* graph_ = nullptr;
  CUgraphExec_st* executable_ = nullptr;
  bool launched_ = false;
};

}  // namespace tessera::cuda
