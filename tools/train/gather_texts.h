// Texts of all ranks on the first.
#pragma once

#include <string>
#include <vector>

#include "sharding/comm/communicator.h"

namespace tessera {

/// What every rank passes, in the order of ranks; on the first rank, an empty list on the others. A
/// collective on the communication stream; waits for it.
std::vector<std::string> gather_texts(const std::string& text, Communicator& world);

}  // namespace tessera
