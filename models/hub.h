// Models that Hugging Face's tools have downloaded.
#pragma once

#include <filesystem>

namespace tessera {

/// Whether `name` has the form of a model's name on the hub: "org/name".
bool is_hub_name(const std::filesystem::path& name);

/// The folder of the model's files in the cache of Hugging Face's hub, without any network. That is
///
///   HF_HOME/hub/models--org--name/snapshots/HASH     with HASH from refs/main next to snapshots
///
/// HF_HOME is ~/.cache/huggingface if the environment does not have it. Raises Error that names the
/// folder and the command to download the model if it is not there.
std::filesystem::path hub_snapshot(const std::filesystem::path& name);

}  // namespace tessera
