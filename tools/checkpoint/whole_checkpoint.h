// Writing a checkpoint of whole tensors in one file, as one rank does.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sharding/checkpoint/writer.h"

namespace tessera {

/// The part that is all of a tensor.
PartToWrite whole_part(const std::string& name, DType dtype, const Shape& shape);

/// Writes the checkpoint of manifest.step into the run folder `run`. `manifest` has no tensors and files yet.
/// bytes_of(i) has the elements of parts[i]. `texts`: the small files. Returns the checkpoint's folder.
/// Raises Error if there is one of this step.
std::filesystem::path write_whole_checkpoint(
    const std::filesystem::path& run, CheckpointManifest manifest,
    const std::vector<PartToWrite>& parts,
    const std::function<std::span<const std::byte>(std::size_t part)>& bytes_of,
    const std::map<std::string, std::string>& texts);

}  // namespace tessera
