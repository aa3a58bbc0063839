// Filling shards from the tensors of files.
#pragma once

#include <filesystem>

#include "runtime/safetensors.h"
#include "sharding/shard.h"

namespace tessera {

/// Fills `to`, floating, with elements from `first` on of these tensors, laid end to end. All lie on the host.
void copy_elements(const Tensor& to, const NamedTensors& tensors, std::int64_t first);

/// Fills the shard with its elements of `tensors`, which lie on the host. End to end, their elements are the
/// parameter's. They are converted to the shard's dtype. Only the shard's own elements are read, but all of a
/// packed matrix. Raises Error that begins with `folder` if a value is NaN or infinite.
void fill_shard(const Shard& shard, const NamedTensors& tensors,
                const std::filesystem::path& folder);

}  // namespace tessera
