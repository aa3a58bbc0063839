#include "runtime/emulation/toolkit/capture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/emulation/toolkit/checks.h"
#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/error.h"

namespace tessera::emulation {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t invalidate(Capture& capture, cudaError_t error, const std::string& why) {
  if (capture.broken.empty()) capture.broken = why;
  return refuse(error, why);
}

void end(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (CUstream_st* const stream : capture->streams) {
    if (stream->capture != capture) continue;  // destroyed since
    stream->ends.clear();
    stream->capture = nullptr;
  }
  std::erase(Devices::get().captures, capture);
}

void join(CUstream_st& stream, const std::shared_ptr<Capture>& capture) {
  stream.capture = capture;
  stream.lane = capture->streams.size();
  capture->streams.push_back(&stream);
  capture->graph->lane_devices.push_back(stream.device);
}

void record(CUstream_st& stream, std::function<std::vector<Item>()> items, bool mark) {
  Capture& capture = *stream.capture;
  if (!capture.broken.empty()) return;
  auto node = std::make_unique<CUgraphNode_st>(CUgraphNode_st{
      .items = std::move(items), .mark = mark, .lane = stream.lane, .after = stream.ends});
  for (CUgraphNode_st* const earlier : node->after) {
    earlier->awaited = earlier->awaited || earlier->lane != node->lane;
  }
  stream.ends = {node.get()};
  capture.graph->nodes.push_back(std::move(node));
}

/// Does the origin's end follow all nodes?
bool is_joined(const Capture& capture) {
  std::set<const CUgraphNode_st*> joined(capture.origin->ends.begin(), capture.origin->ends.end());
  const auto& nodes = capture.graph->nodes;
  return std::all_of(nodes.rbegin(), nodes.rend(), [&](const auto& node) {
    if (joined.count(node.get()) == 0) return node->mark;
    joined.insert(node->after.begin(), node->after.end());
    return true;
  });
}

}  // namespace

void check_uses(const std::vector<MemoryUse>& uses) {
  const Devices& devices = Devices::get();
  for (const MemoryUse& use : uses) {
    const DeviceMemory::Block* const block = devices.memory.find(use.data);
    const bool exists = use.block == 0 ? devices.is_host_block(use.data, use.bytes)
                                       : block != nullptr && block->number == use.block;
    if (exists) continue;
    throw Error(std::string("a graph uses ") + (use.block == 0 ? "pinned" : "device") +
                " memory that was freed after the capture");
  }
}

void submit(CUstream_st& stream, Work work) {
  if (stream.capture == nullptr) {
    return Devices::get().enqueue(
        stream, {.work = std::move(work.run), .devices = work.devices, .early = work.early});
  }
  const bool mark = work.mark;
  const auto shared = std::make_shared<const Work>(std::move(work));
  const auto run = [shared] {
    check_uses(shared->uses);
    shared->run();
  };
  record(
      stream,
      [=] {
        return std::vector{Item{.work = run, .devices = shared->devices, .early = shared->early}};
      },
      mark);
}

void submit(CUstream_st& stream, std::function<std::vector<Item>()> items) {
  if (stream.capture != nullptr) return record(stream, std::move(items), /*mark=*/false);
  for (Item& item : items()) Devices::get().enqueue(stream, std::move(item));
}

std::vector<MemoryUse> uses_of(const CUstream_st& stream, std::span<const std::uintptr_t> words) {
  std::vector<MemoryUse> uses;
  if (stream.capture == nullptr) return uses;
  for (const std::uintptr_t word : words) {
    const auto* const data = reinterpret_cast<const void*>(word);
    if (const auto* const block = Devices::get().memory.find(data)) {
      uses.push_back({data, 0, block->number});
    }
  }
  return uses;
}

cudaError_t check_work(cudaStream_t stream) {
  if (const auto error = check_stream(stream)) return error;
  if (stream->capture == nullptr || stream->capture->broken.empty()) return cudaSuccess;
  return refuse(cudaErrorStreamCaptureInvalidated, stream->capture->broken);
}

cudaError_t check_outside_capture(cudaStream_t stream, const char* call) {
  if (const auto error = check_stream(stream)) return error;
  if (stream->capture == nullptr) return cudaSuccess;
  return break_capture(*stream, cudaErrorStreamCaptureUnsupported,
                       std::string(call) + ": the stream captures");
}

cudaError_t check_allowed(const char* call) {
  cudaError_t error = cudaSuccess;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return error;
  for (const auto& capture : Devices::get().captures) {
    const bool own = capture->thread == std::this_thread::get_id() &&
                     capture->mode != cudaStreamCaptureModeRelaxed;
    const bool global =
        capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!own && !global) continue;
    error = invalidate(
        *capture, cudaErrorStreamCaptureUnsupported,
        std::string(call) + ": not while " + (own ? "this" : "another") + " thread captures");
  }
  return error;
}

cudaError_t check_no_capture(int device, const char* call) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : Devices::get().captures) {
    const auto on_device = [=](const CUstream_st* stream) { return stream->device == device; };
    if (std::none_of(capture->streams.begin(), capture->streams.end(), on_device)) continue;
    error = invalidate(*capture, cudaErrorStreamCaptureUnsupported,
                       std::string(call) + ": a stream of the device captures");
  }
  return error;
}

cudaError_t check_not_captured(const CUevent_st& event, const char* call) {
  if (event.capture == nullptr) return cudaSuccess;
  return invalidate(*event.capture, cudaErrorCapturedEvent,
                    std::string(call) + ": the event was recorded in a capture");
}

cudaError_t break_capture(const CUstream_st& stream, cudaError_t error, const std::string& why) {
  return invalidate(*stream.capture, error, why);
}

void leave_capture(CUstream_st& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  invalidate(*capture, cudaErrorStreamCaptureUnsupported, "a stream was destroyed in its capture");
  if (capture->origin == &stream) return end(capture);
  stream.ends.clear();
  stream.capture = nullptr;
}

void record_in_capture(CUevent_st& event, const CUstream_st& stream) {
  event.point = nullptr;
  event.capture = stream.capture;
  event.ends = stream.ends;
}

cudaError_t wait_in_capture(CUstream_st& stream, const CUevent_st& event) {
  if (event.capture == nullptr) {
    return break_capture(stream, cudaErrorStreamCaptureIsolation,
                         "a stream that captures waits for an event recorded outside the capture");
  }
  if (event.capture->ended) return check_not_captured(event, "cudaStreamWaitEvent");
  if (!event.capture->broken.empty()) {
    return refuse(cudaErrorStreamCaptureInvalidated, event.capture->broken);
  }
  if (stream.capture == nullptr) join(stream, event.capture);
  if (stream.capture != event.capture) {
    const std::string why = "streams of two captures wait for one another";
    invalidate(*event.capture, cudaErrorStreamCaptureMerge, why);
    return break_capture(stream, cudaErrorStreamCaptureMerge, why);
  }
  for (CUgraphNode_st* const node : event.ends) {
    if (std::count(stream.ends.begin(), stream.ends.end(), node) == 0) stream.ends.push_back(node);
  }
  return cudaSuccess;
}

}  // namespace tessera::emulation

using namespace tessera::emulation;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  if (const auto error = check_stream(stream)) return error;
  if (stream->capture != nullptr) {
    return refuse(cudaErrorIllegalState, "cudaStreamBeginCapture: the stream captures already");
  }
  const auto capture = std::make_shared<Capture>(
      Capture{.origin = stream, .mode = mode, .thread = std::this_thread::get_id()});
  join(*stream, capture);
  devices.captures.push_back(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto lock = Devices::get().lock();
  *graph = nullptr;
  const cudaError_t failed = check_stream(stream);
  if (failed == cudaErrorInvalidResourceHandle) return failed;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) {
    return refuse(cudaErrorIllegalState, "cudaStreamEndCapture: the stream does not capture");
  }
  if (capture->origin != stream) {
    return break_capture(*stream, cudaErrorStreamCaptureUnmatched,
                         "cudaStreamEndCapture: the capture began in another stream");
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return refuse(cudaErrorStreamCaptureWrongThread);
  }
  const bool joined = is_joined(*capture);
  if (capture->late_calls > 0 && capture->broken.empty()) {
    capture->broken =
        "NCCL has not recorded a call: wait until ncclCommGetAsyncError's state is success";
  }
  end(capture);
  if (failed != cudaSuccess) return failed;
  if (!capture->broken.empty()) return refuse(cudaErrorStreamCaptureInvalidated, capture->broken);
  if (!joined) return refuse(cudaErrorStreamCaptureUnjoined);
  *graph = make_graph(capture->graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_stream(stream)) return error;
  *status = stream->capture == nullptr        ? cudaStreamCaptureStatusNone
            : stream->capture->broken.empty() ? cudaStreamCaptureStatusActive
                                              : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (*mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed) {
    return refuse(cudaErrorInvalidValue, "cudaThreadExchangeStreamCaptureMode: no such mode");
  }
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
