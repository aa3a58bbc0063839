// A run that PyTorch has begun and Tessera continues: a folder of torch.distributed.checkpoint as a checkpoint.
//
// Converted are the weights, AdamW's moments and the number of updates, in their stored dtypes and bit for bit. In the
// folder (dcp_folder.h) these are the tensors
//
//   <fqn>                                                    the weights, or model.<fqn> and so on
//   optimizer.state.<fqn>.exp_avg, .exp_avg_sq, .step        the moments and updates, or optim.state.<fqn> and so on
//
// where <fqn> is a name of Transformers or torchtitan (dcp_names.h). The position in the data and the learning-rate
// schedule are not converted.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/config/config.h"

namespace tessera {

/// Whether a path is a folder of torch.distributed.checkpoint.
bool is_dcp_folder(const std::filesystem::path& path);

/// Writes the folder `dcp` as a checkpoint in the run folder `out`, from which a run of `config` continues, with the
/// first batch of its data. Names and ranks of the folder are found out. Without moments in the folder they are 0, and
/// the checkpoint is one of step 0. One tensor is in memory at a time. Returns lines for the user: the checkpoint,
/// and the parts that are new or left out. Raises Error if the model of `config` does not have just the tensors of the
/// folder, or if its optimizer is not AdamW.
std::vector<std::string> import_dcp(const std::filesystem::path& dcp, const Config& config,
                                    const std::filesystem::path& out);

}  // namespace tessera
