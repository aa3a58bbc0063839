// The key of a batch's growth.
#pragma once

#include <string>
#include <vector>

#include "tools/config/keys.h"
#include "tools/data/batch_sizes.h"

namespace tessera {

/// A key with a list of [steps, rows]: "[[100, 8], [200, 16]]".
Key batch_ramp_key(std::string name, std::vector<BatchStage>& ramp, std::string documentation);

}  // namespace tessera
