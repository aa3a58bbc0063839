// Bad data that a kernel finds, such as an id outside its table. A kernel cannot raise an Error: it
// leaves a word for the host (kernels/cuda/fault.h), which raises it at the stream's next
// synchronization.
#pragma once

#include <string>

namespace tessera::cuda {

enum class Fault : unsigned char {
  embedding_id,          // not a row of the table
  cross_entropy_target,  // neither a class nor ignore_index
  rope_position,         // not a row of the table of angles
};

/// A fault and the position of what is bad in its tensor: position << 8 | fault. The smallest word
/// wins, so the first position is named, whatever order the threads ran in.
using FaultWord = unsigned long long;
inline constexpr FaultWord kNoFault = ~0ull;

/// "embedding: the id at position 5 is not a row of the table".
std::string describe(FaultWord word);

}  // namespace tessera::cuda
