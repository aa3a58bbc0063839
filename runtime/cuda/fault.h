// Bad data that a kernel finds, such as an id outside its table.
//
// A kernel cannot raise an Error. It leaves a word in memory that the host reads
// (kernels/cuda/fault.h), and the stream's next synchronization raises the Error.
#pragma once

namespace tessera::cuda {

/// The position of the bad element in its tensor and the kind of fault: position << 8 | kind. The
/// smallest word wins, so the first position is named, in any order of the threads.
using FaultWord = unsigned long long;
inline constexpr FaultWord kNoFault = ~0ull;

/// One kind of fault on one stream: made by fault_slot (runtime/cuda/stream.h) and passed to a
/// kernel by value.
struct FaultSlot {
  FaultWord* word = nullptr;
  /// The number of the message in the stream's list.
  FaultWord kind = 0;
};

}  // namespace tessera::cuda
