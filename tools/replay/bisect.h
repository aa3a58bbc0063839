// tessera bisect RUN_A RUN_B: the first tensor in which two runs differ.
//
// metrics.jsonl of both names the first step with other losses or norms. Both runs are repeated up to it, and
// compared in the order in which values flow: weights and optimizer state before the step, then every
// tensor of every operation, then the reduced gradients.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/config/config.h"

namespace tessera {

/// The keys with other values in the two configurations for which a comparison of tensors makes no
/// sense: those of the model, of the shape of a batch, of ranks and of sharding.
std::vector<std::string> incomparable_keys(const Config& a, const Config& b);

/// Returns the lines that the program prints: the first step, and the first tensor with its unit, rank
/// and largest difference. Nothing is written. Raises Error if the runs cannot be compared, have no
/// step in common, or cannot be repeated (replayed_rank.h).
std::vector<std::string> bisect(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace tessera
