// The name of the update stream: on it the optimizer writes parameters.
//
// It is a side stream, and the next forward pass runs at the same time (runtime.overlap_update).
#pragma once

namespace tessera {

/// On a GPU its work takes what the compute stream leaves free: it has the least priority.
inline constexpr const char* kUpdateStream = "update";

}  // namespace tessera
