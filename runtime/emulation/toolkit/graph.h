// Graphs: work of streams, recorded once and launched any number of times.
//
// The nodes that one stream captured are a lane: each follows the one before. Other dependencies are
// between lanes. At a launch every lane is a stream of its own, so lanes run in any order that the
// dependencies allow (Progress in toolkit/emulated_device.h), and a missing one shows.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/emulation/toolkit/device_queue.h"

struct CUgraphNode_st {
  std::function<std::vector<tessera::emulation::Item>()> items;  // of one launch
  bool mark = false;     // of memory in use: the emulation's own, not a node of CUDA's
  std::size_t lane = 0;  // of the stream that captured it
  bool awaited = false;  // by a node of another lane
  std::vector<CUgraphNode_st*> after;
};

namespace tessera::emulation {

struct GraphNodes {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // each behind those that it follows
  std::vector<int> lane_devices;
};

}  // namespace tessera::emulation

struct CUgraph_st {
  std::shared_ptr<const tessera::emulation::GraphNodes> nodes;  // null: destroyed
};

struct CUgraphExec_st {
  std::shared_ptr<const tessera::emulation::GraphNodes> nodes;  // null: destroyed
  std::vector<CUstream_st*> lanes;
  std::vector<tessera::emulation::PointHandle> ends;  // of the last launch, by lane
};

namespace tessera::emulation {

/// Callers hold the lock of Devices.
CUgraph_st* make_graph(std::shared_ptr<const GraphNodes> nodes);

}  // namespace tessera::emulation
