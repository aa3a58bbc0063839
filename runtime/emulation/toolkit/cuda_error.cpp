// The emulated runtime's errors: the toolkit's numbers and texts, with the emulation's reason.
#include "runtime/emulation/toolkit/cuda_error.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tessera::emulation {
namespace {

/// The calling thread's last failed call: its error and the reason.
struct LastError {
  cudaError_t error = cudaSuccess;
  cudaError_t explained = cudaSuccess;
  std::string why;
};
thread_local LastError last;

struct Entry {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr Entry kEntries[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const Entry& entry_of(cudaError_t error) {
  return *std::find_if(std::begin(kEntries), std::end(kEntries) - 1,
                       [=](const Entry& entry) { return entry.error == error; });
}

}  // namespace

cudaError_t refuse(cudaError_t error, std::string why) {
  last = {error, error, std::move(why)};
  return error;
}

}  // namespace tessera::emulation

using namespace tessera::emulation;

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess || error != last.explained || last.why.empty())
    return entry_of(error).text;
  thread_local std::string text;
  text = std::string(entry_of(error).text) + ": " + last.why;
  return text.c_str();
}
const char* cudaGetErrorName(cudaError_t error) {
  return entry_of(error).name;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last.error, cudaSuccess);
}
