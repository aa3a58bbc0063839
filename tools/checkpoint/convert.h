// Other forms of a checkpoint: one file of whole tensors, and a model folder.
#pragma once

#include <filesystem>

namespace tessera {

/// Writes the newest checkpoint at `path` (checkpoints_at) as that of one rank: every tensor whole, in
/// one safetensors file. It becomes a checkpoint in the run folder `out`, from which a run may continue.
/// One tensor is in memory at a time. Returns its folder. Raises Error if `out` has one of this step,
/// or if a byte that was read is damaged.
std::filesystem::path consolidate_checkpoint(const std::filesystem::path& path,
                                             const std::filesystem::path& out);

/// Writes the model of the newest checkpoint at `path` as a folder that Transformers loads, with its
/// tokenizer. `ema`: the averages of train.ema instead of the weights. Raises Error if `out` holds a model, if a
/// byte that was read is damaged, or if there are no averages.
void export_checkpoint(const std::filesystem::path& path, const std::filesystem::path& out,
                       bool ema);

}  // namespace tessera
