#include "runtime/emulation/toolkit/graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/checks.h"
#include "runtime/emulation/toolkit/cuda_error.h"

namespace tessera::emulation {
namespace {

cudaError_t check_graph(const CUgraph_st* graph) {
  if (graph != nullptr && graph->nodes != nullptr) return cudaSuccess;
  return refuse(cudaErrorInvalidValue, "the graph was destroyed or is null");
}

cudaError_t check_executable(const CUgraphExec_st* executable) {
  if (executable != nullptr && executable->nodes != nullptr) return cudaSuccess;
  return refuse(cudaErrorInvalidValue, "the executable graph was destroyed or is null");
}

PointHandle pass_in(CUstream_st& stream) {
  const auto point = std::make_shared<Point>();
  Devices::get().enqueue(stream, {.pass = point});
  return point;
}

void wait_in(CUstream_st& stream, const PointHandle& point) {
  Devices::get().enqueue(stream, {.wait = point});
}

/// The node's own items, between waits for nodes of other lanes and a point that they wait for.
void launch_node(const CUgraphNode_st& node, CUstream_st& lane,
                 std::map<const CUgraphNode_st*, PointHandle>& points) {
  for (const CUgraphNode_st* earlier : node.after) {
    if (earlier->lane != node.lane) wait_in(lane, points.at(earlier));
  }
  for (Item& item : node.items()) Devices::get().enqueue(lane, std::move(item));
  if (node.awaited) points[&node] = pass_in(lane);
}

// Behind the stream's earlier work and the graph's last launch, before the stream's later work.
void launch(CUgraphExec_st& executable, CUstream_st& stream) {
  for (const PointHandle& end : executable.ends) wait_in(stream, end);
  const PointHandle begin = pass_in(stream);
  for (CUstream_st* const lane : executable.lanes) wait_in(*lane, begin);
  std::map<const CUgraphNode_st*, PointHandle> points;
  for (const auto& node : executable.nodes->nodes) {
    launch_node(*node, *executable.lanes[node->lane], points);
  }
  executable.ends.clear();
  for (CUstream_st* const lane : executable.lanes) {
    executable.ends.push_back(pass_in(*lane));
    wait_in(stream, executable.ends.back());
  }
}

}  // namespace

// Never freed, so the use of a destroyed one is an error and not a crash.
CUgraph_st* make_graph(std::shared_ptr<const GraphNodes> nodes) {
  static std::vector<std::unique_ptr<CUgraph_st>>& graphs =
      *new std::vector<std::unique_ptr<CUgraph_st>>;
  graphs.push_back(std::make_unique<CUgraph_st>(CUgraph_st{std::move(nodes)}));
  ++Devices::get().graphs;
  return graphs.back().get();
}

namespace {

CUgraphExec_st* make_executable(const CUgraph_st& graph) {
  static std::vector<std::unique_ptr<CUgraphExec_st>>& executables =
      *new std::vector<std::unique_ptr<CUgraphExec_st>>;
  executables.push_back(std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph.nodes, {}, {}}));
  for (const int device : graph.nodes->lane_devices) {
    executables.back()->lanes.push_back(Devices::get().take_lane(device));
  }
  ++Devices::get().graphs;
  return executables.back().get();
}

}  // namespace
}  // namespace tessera::emulation

using namespace tessera::emulation;

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_graph(graph)) return error;
  std::vector<CUgraphNode_st*> found;
  for (const auto& node : graph->nodes->nodes) {
    if (!node->mark) found.push_back(node.get());
  }
  if (nodes != nullptr) {
    const std::size_t places = *count;
    for (std::size_t i = 0; i < places; ++i) nodes[i] = i < found.size() ? found[i] : nullptr;
    found.resize(std::min(places, found.size()));
  }
  *count = found.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  const auto lock = Devices::get().lock();
  *executable = nullptr;
  if (const auto error = check_graph(graph)) return error;
  if (flags != 0) {
    return refuse(cudaErrorInvalidValue, "cudaGraphInstantiate: flags are not emulated");
  }
  *executable = make_executable(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_executable(executable)) return error;
  return check_outside_capture(stream, "cudaGraphUpload");
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  if (const auto error = check_executable(executable)) return error;
  if (const auto error = check_outside_capture(stream, "cudaGraphLaunch")) return error;
  ++devices.host_calls.graphs;
  launch(*executable, *stream);
  return refuse_failed(stream->device);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_graph(graph)) return error;
  graph->nodes = nullptr;
  --Devices::get().graphs;
  return cudaSuccess;
}

// Launches that are queued go on: their items share the nodes' work.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_executable(executable)) return error;
  for (CUstream_st* const lane : executable->lanes) Devices::get().give_back_lane(lane);
  *executable = {};
  --Devices::get().graphs;
  return cudaSuccess;
}
