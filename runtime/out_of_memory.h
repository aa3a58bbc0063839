// The error about a device that has no memory for a tensor.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/error.h"

namespace tessera {

/// Raised by the allocator. The line is the problem and then advice, which here suits any program.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& problem, std::int64_t bytes)
      : Error(problem + "; " + kGeneralAdvice), problem(problem), live_bytes(bytes) {}

  static constexpr const char* kGeneralAdvice =
      "choose a smaller batch, a shorter sequence or activation checkpointing";

  std::string problem;
  /// Bytes of tensors on the device, without the one that was asked for.
  std::int64_t live_bytes;
};

/// Calls `body`, and where it has too little memory gives the advice of the program: an OutOfMemory
/// becomes an Error whose line ends with `advice(error)`, a std::string. The tensors of `body` are
/// released by then.
template <typename Advice, typename Body>
void with_advice(const Advice& advice, const Body& body) {
  try {
    body();
  } catch (const OutOfMemory& error) {
    throw Error(error.problem + "; " + advice(error));
  }
}

}  // namespace tessera
