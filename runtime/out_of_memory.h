// The error about a device that has no memory for a tensor.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/error.h"

namespace tessera {

/// Raised by the allocator. The trainer adds which settings would fit.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, std::int64_t bytes) : Error(message), live_bytes(bytes) {}
  /// Bytes of tensors on the device, without the one that was asked for.
  std::int64_t live_bytes;
};

}  // namespace tessera
