// The sizes of a run's model: its preset or files, the configuration's keys and the data's vocabulary.
#pragma once

#include <string>

#include "models/registry.h"
#include "tools/config/config.h"

namespace tessera {

struct SizedModel {
  Hyperparameters model;
  /// The origin of the vocabulary size, for headers: "from data/mine/manifest.json".
  std::string vocabulary_origin;
};

/// Reads the manifests next to data.train and the folder model.init_from, where they are named and exist.
/// Raises Error if sizes contradict each other, the model, its tokenizer or the data, or are too large.
SizedModel size_model(const Config& config);

}  // namespace tessera
