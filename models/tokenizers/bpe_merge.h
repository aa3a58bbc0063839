// The merge loop of byte-pair encoding.
#pragma once

#include <cstdint>
#include <vector>

#include "models/tokenizers/bpe.h"

namespace tessera {

/// Merges neighbours in place until no merge applies: least rank first, then leftmost. Short lists
/// are scanned for every merge; n symbols of a long one take O(n log n) time.
void merge_symbols(const MergeTable& merges, std::vector<std::int32_t>& symbols);

}  // namespace tessera
