// The emulated CUDA runtime: streams and events.
#include <algorithm>
#include <memory>

#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/checks.h"
#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"

using namespace tessera::emulation;

namespace {

// As the toolkit gives them for NVIDIA's GPUs since Volta.
constexpr int kLeastPriority = 0, kGreatestPriority = -5;

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, kLeastPriority);
}

// A priority outside the range is the nearest in it, as with the toolkit. It changes no order here:
// any order that the streams' events allow may happen on a GPU.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const auto lock = Devices::get().lock();
  if (const auto error = refuse_failed(current_device())) return error;
  if (flags != cudaStreamNonBlocking) {
    return refuse(cudaErrorInvalidValue,
                  "streams that wait for the default stream are not emulated");
  }
  *stream = Devices::get().make_stream(current_device());
  (*stream)->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_stream(stream)) return error;
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = kLeastPriority;
  *greatest = kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  auto lock = Devices::get().lock();
  const cudaError_t error = check_stream(stream);
  if (error == cudaErrorInvalidResourceHandle) return error;
  leave_capture(*stream);
  Devices::get().synchronize(*stream, lock);
  stream->destroyed = true;
  return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  auto lock = Devices::get().lock();
  if (const auto error = check_outside_capture(stream, "cudaStreamSynchronize")) return error;
  if (const auto error = check_allowed("cudaStreamSynchronize")) return error;
  ++Devices::get().host_calls.waits;
  Devices::get().synchronize(*stream, lock);
  return refuse_failed(stream->device);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_work(stream)) return error;
  if (const auto error = check_event(event)) return error;
  ++Devices::get().host_calls.events;
  const bool recorded = event->point != nullptr || event->capture != nullptr;
  if (!recorded) return cudaSuccess;  // nothing to wait for
  if (stream->capture != nullptr || event->capture != nullptr) {
    return wait_in_capture(*stream, *event);
  }
  Devices::get().enqueue(*stream, {.wait = event->point});
  return cudaSuccess;
}

// The device's memory is out of reach meanwhile.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_work(stream)) return error;
  ++Devices::get().host_calls.launches;
  submit(*stream, {.run = [=] { function(data); }});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const auto lock = Devices::get().lock();
  if (const auto error = refuse_failed(current_device())) return error;
  *event = Devices::get().make_event(current_device(), (flags & cudaEventDisableTiming) == 0);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_event(event)) return error;
  event->destroyed = true;
  event->point = nullptr;
  event->capture = nullptr;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_work(stream)) return error;
  if (const auto error = check_event(event)) return error;
  if (event->device != stream->device) {
    return refuse(cudaErrorInvalidResourceHandle,
                  "the event belongs to another device than the stream");
  }
  ++Devices::get().host_calls.events;
  if (stream->capture != nullptr) {
    record_in_capture(*event, *stream);
    return cudaSuccess;
  }
  event->capture = nullptr;
  event->point = std::make_shared<Point>();
  Devices::get().enqueue(*stream, {.pass = event->point});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_event(event)) return error;
  if (const auto error = check_not_captured(*event, "cudaEventQuery")) return error;
  if (const auto error = check_allowed("cudaEventQuery")) return error;
  const bool passed = event->point == nullptr || Devices::get().query(event->point);
  if (const auto error = refuse_failed(event->device)) return error;
  return passed ? cudaSuccess : refuse(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  auto lock = Devices::get().lock();
  if (const auto error = check_event(event)) return error;
  if (const auto error = check_not_captured(*event, "cudaEventSynchronize")) return error;
  if (const auto error = check_allowed("cudaEventSynchronize")) return error;
  if (event->point != nullptr && !event->point->passed) {
    ++Devices::get().host_calls.waits;
    const PointHandle point = event->point;
    Devices::get().run_until(point, lock);
  }
  return refuse_failed(event->device);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto lock = Devices::get().lock();
  for (cudaEvent_t event : {start, end}) {
    if (const auto error = check_event(event)) return error;
    if (const auto error = check_not_captured(*event, "cudaEventElapsedTime")) return error;
    if (!event->timed || event->point == nullptr) {
      return refuse(cudaErrorInvalidResourceHandle, "the event was not recorded or has no time");
    }
    if (!event->point->passed) return refuse(cudaErrorNotReady);
  }
  const auto elapsed = end->point->time - start->point->time;
  *milliseconds = std::chrono::duration<float, std::milli>(elapsed).count();
  return cudaSuccess;
}
