// From text files to a folder of token files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/data/manifest.h"

namespace tessera {

struct PrepareOptions {
  /// Text files. Their bytes are joined in this order, without a separator.
  std::vector<std::filesystem::path> inputs;
  /// "bytes", "chars", or a folder with a tokenizer (models/tokenizers/tokenizer.h).
  std::string tokenizer;
  std::filesystem::path out;
  /// The share of the joined text, from its end, that becomes the validation set. With several
  /// files that is the end of the last one.
  double val_fraction = 0.1;
};

/// Writes train.bin, val.bin, the tokenizer and manifest.json to `options.out`. It replaces files
/// there only when all are complete. All cores encode. Raises Error if an input is not a readable
/// text file.
Manifest prepare(const PrepareOptions& options);

}  // namespace tessera
