// The measured algorithms of all ranks' matrix products, as a file of a checkpoint:
//
//   {"ranks": [{"made_by": "cuBLASLt 130100 on NVIDIA H100 80GB HBM3",
//               "choices": {"bf16 [1024, 768] = ...": "0000000000000009..."}}, ...]}
#pragma once

#include <string>
#include <string_view>

#include "sharding/comm/communicator.h"

namespace tessera {

/// The text of the file, on rank 0. A collective.
std::string algorithms_text(Communicator& world);

/// Gives this rank the algorithms of rank `rank` in such a text. Where the text has fewer ranks, it
/// counts them again from the first. Returns a warning if another library or GPU has measured them,
/// and else nothing. Raises Error if the text has another form.
std::string use_algorithms(std::string_view text, int rank);

}  // namespace tessera
