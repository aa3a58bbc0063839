// From text files to a folder of token files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/data/manifest.h"

namespace tessera {

struct PrepareOptions {
  /// Texts, read one after the other as if they were one.
  std::vector<std::filesystem::path> inputs;
  /// "bytes" or "chars".
  std::string tokenizer;
  std::filesystem::path out;
  /// The last part of the text becomes the validation set.
  double val_fraction = 0.1;
};

/// Writes train.bin, val.bin, tokenizer.json and manifest.json to `options.out`. Nothing there is
/// touched before all of them are complete.
Manifest prepare(const PrepareOptions& options);

}  // namespace tessera
