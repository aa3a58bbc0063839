// The reference of a preference objective: log-probabilities of all answers by the model that training starts from.
//
// `tessera reference` computes them once, with the ranks of the run, and writes them next to the token files:
// train.reference next to train.bin. It is a safetensors file with the tensor log_probabilities [pairs, 2] f32,
// chosen and rejected, in the order of the rows of data.rows and data.sequence_length. Its metadata has a
// fingerprint of the model and one of the pairs. A fresh adapter adds nothing to the base, so the reference of an
// adapter's run is the base.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/data/row_source.h"
#include "tools/train/resolve.h"

namespace tessera {

/// The reference file of tokens that data.train or data.val names.
std::filesystem::path reference_file_of(const std::filesystem::path& tokens);

/// The fingerprint of the starting model: of the weights of model.init_from and adapter.path, or of the sizes and
/// train.seed of a new model.
std::string model_fingerprint(const ResolvedConfig& run);

/// Reads the reference of these rows. Raises Error with the command to run if the file is missing, or is of
/// another model or of other pairs.
std::vector<float> read_reference(const std::filesystem::path& file, const RowSource& rows,
                                  const std::string& model);

/// Writes the reference files of data.train, data.val and data.validation, and returns their paths. A
/// collective of the run's processes. Raises Error if the objective needs none.
std::vector<std::filesystem::path> write_references(const Config& config);

}  // namespace tessera
