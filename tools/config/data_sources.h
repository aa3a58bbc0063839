// The keys with lists of token files as values.
//
//   data:
//     train:
//       - {path: data/web/train.bin, weight: 0.8}
//       - {path: data/code/train.bin, weight: 0.2, until_step: 9000}
//       - {path: data/code/train.bin, weight: 0.6, from_step: 9001}
//     validation:
//       - {name: web, path: data/web/val.bin}
#pragma once

#include <string>
#include <vector>

#include "tools/config/keys.h"

namespace tessera {

/// data.train: a path, or a list of sources. As text a list is YAML: [{path: a.bin, weight: 0.5}].
Key training_data_key(TrainingData& data);
/// data.validation.
Key validation_key(std::vector<ValidationSource>& sources);

/// The value of data.train, for messages.
std::string to_string(const TrainingData& data);

}  // namespace tessera
