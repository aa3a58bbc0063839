// Numbers and texts of all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sharding/comm/communicator.h"

namespace tessera {

/// The numbers of all ranks, equally many of each, in the order of ranks; the same on every rank. A
/// collective on the communication stream that waits for its result.
std::vector<std::vector<std::int64_t>> gather_numbers(const std::vector<std::int64_t>& numbers,
                                                      Communicator& world);

/// Rank 0's text, on every rank. A collective on the communication stream that waits for its result.
std::string text_of_first_rank(const std::string& text, Communicator& world);

/// The texts of all ranks in the order of ranks, on rank 0; an empty list on the others. A
/// collective on the communication stream that waits for its result.
std::vector<std::string> gather_texts(const std::string& text, Communicator& world);

}  // namespace tessera
