// Stream capture: the work of streams becomes a graph, by the rules of the programming guide's chapter
// "CUDA Graphs" (section "Stream Capture").
//
// Callers hold the lock of Devices.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/emulation/toolkit/graph.h"
#include "runtime/emulation/toolkit/memory_use.h"

namespace tessera::emulation {

/// A capture under way, or ended: events may still point to it.
struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<CUstream_st*> streams;  // by lane; the origin is the first
  std::shared_ptr<GraphNodes> graph = std::make_shared<GraphNodes>();
  std::string broken;  // the reason; empty: the capture is valid
  bool ended = false;
  int late_calls = 0;  // of NCCL, which its thread has not recorded yet
};

struct Work {
  std::function<void()> run;
  unsigned devices = 0;  // bit i: it may touch the memory of device i
  std::vector<MemoryUse> uses{};
  bool early = false;  // Item::early
  bool mark = false;   // CUgraphNode_st::mark
};

/// Queues the work, or records it if the stream captures.
void submit(CUstream_st& stream, Work work);
/// The same for a series of items, made for every run.
void submit(CUstream_st& stream, std::function<std::vector<Item>()> items);

/// The blocks of device memory that the words point to, if the stream captures. Otherwise empty.
std::vector<MemoryUse> uses_of(const CUstream_st& stream, std::span<const std::uintptr_t> words);

/// Refuses work on a stream that is in an invalid capture.
cudaError_t check_work(cudaStream_t stream);
/// Refuses `call` on a stream that captures, and invalidates the capture.
cudaError_t check_outside_capture(cudaStream_t stream, const char* call);
/// Refuses a call that allocates, frees or waits, if the calling thread's mode and the captures under
/// way forbid it (cudaThreadExchangeStreamCaptureMode), and invalidates these captures.
cudaError_t check_allowed(const char* call);
/// Refuses to wait for a device of which a stream captures, and invalidates its captures.
cudaError_t check_no_capture(int device, const char* call);
/// Refuses a call of the host about an event that was recorded in a capture, and invalidates it.
cudaError_t check_not_captured(const CUevent_st& event, const char* call);

/// Invalidates the stream's capture and refuses a call with `error`.
cudaError_t break_capture(const CUstream_st& stream, cudaError_t error, const std::string& why);
/// The stream's capture, if it has one, becomes invalid and goes on without the stream.
void leave_capture(CUstream_st& stream);

/// cudaEventRecord and cudaStreamWaitEvent where the stream or the event is part of a capture.
void record_in_capture(CUevent_st& event, const CUstream_st& stream);
cudaError_t wait_in_capture(CUstream_st& stream, const CUevent_st& event);

}  // namespace tessera::emulation
