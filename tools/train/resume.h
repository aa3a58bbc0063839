// Resuming: which checkpoint a run starts from, and which keys may differ from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "sharding/checkpoint/folder.h"
#include "tools/config/config.h"

namespace tessera {

/// The files of a checkpoint, next to the ranks' and the manifest.
inline constexpr const char* kConfigFile = "config.yaml";
inline constexpr const char* kModelFile = "config.json";
inline constexpr const char* kAlgorithmsFile = "algorithms.json";

/// The checkpoints that train.resume names, in the order of steps. Raises Error, with the place of
/// the key, if it names a path without any.
std::vector<CheckpointFolder> resumable_checkpoints(const Config& config);

/// Whether a run may continue with another value of this key: those of runtime, sharding and kernels
/// and the keys of train, but its seed and elastic.
bool may_change_on_resume(std::string_view key);

/// Raises Error that names the first key with another value in the newest checkpoint that can be
/// read, and both values; if train.steps is less than its step; or if its adapters were trained on other weights
/// than model.init_from has. `config` is a resolved one.
void check_resume(const Config& config);

}  // namespace tessera
