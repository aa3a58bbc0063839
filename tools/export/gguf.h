// Writing a model as a GGUF file, which llama.cpp loads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tools/export/gguf_file.h"

namespace tessera {

struct GgufOptions {
  /// A run folder, its model/, or a Hugging Face model folder.
  std::filesystem::path model;
  /// The file to write; must not exist.
  std::filesystem::path out;
  /// How matrices are held; none: as the folder stores them. Vectors, tables of positions and routers
  /// are f32 always. A matrix whose rows are no multiple of 32 is f16 instead of q8_0.
  std::optional<GgufType> type;
};

/// Writes weights, tokenizer and hyperparameters. At most one tensor is in memory. Raises Error, before
/// it writes, if the model cannot be read, has no tokenizer, or is one that llama.cpp computes in
/// another way. Returns a warning if it does so for some texts, else an empty text.
std::string export_gguf(const GgufOptions& options);

}  // namespace tessera
