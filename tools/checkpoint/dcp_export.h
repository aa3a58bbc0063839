// A run that Tessera has begun and PyTorch continues: a checkpoint as a folder of torch.distributed.checkpoint.
//
// The tensors are named as in dcp_import.h, without words before the weights' names. The optimizer's dictionary is
// flat, as torch.distributed.checkpoint.state_dict makes it with flatten_optimizer_state_dict: it has the settings
// of each parameter, too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/checkpoint/dcp_names.h"

namespace tessera {

/// Writes the newest checkpoint at `path` (checkpoints_at) as such a folder, in one file. A tied head is written under
/// both names. One tensor is in memory at a time. Returns lines for the user: the folder, and the parts left out.
/// Raises Error if `out` has a checkpoint, or if the run's optimizer is not AdamW.
std::vector<std::string> export_dcp(const std::filesystem::path& path,
                                    const std::filesystem::path& out, DcpNames names);

}  // namespace tessera
