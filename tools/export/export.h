// Writing a model as a folder that Transformers loads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "models/language_model.h"
#include "runtime/dtype.h"

namespace tessera {

struct ExportOptions {
  /// A run folder, its model/, or a Hugging Face model folder.
  std::filesystem::path model;
  /// Must not hold a model yet.
  std::filesystem::path out;
  /// None: every tensor keeps its stored dtype.
  std::optional<DType> dtype;
  /// The most bytes of tensors in one file; a tensor is never cut.
  std::int64_t file_bytes = 5'000'000'000;
};

/// Writes the files that AutoModelForCausalLM and AutoTokenizer load:
///
///   config.json                     in the dialect of Transformers 4.x, written last
///   model.safetensors               or model-00001-of-00003.safetensors, ... and
///                                   model.safetensors.index.json
///   tokenizer.json, ...             files of the tokenizer and of generation, copied
///
/// At most one tensor is in memory. Raises Error if the model cannot be read or `out` holds one.
/// Returns left_out().
std::string export_model(const ExportOptions& options);

/// A warning if other programs have no place for a part of the model, else an empty text.
std::string left_out(const LanguageModel& model);

/// write(model) for a folder with the averages of train.ema as weights, which is "OUT.whole" and is removed then:
/// those of the newest checkpoint at `run` (checkpoints_at). Returns its warning.
std::string export_averages(
    const std::filesystem::path& run, const std::filesystem::path& out,
    const std::function<std::string(const std::filesystem::path& model)>& write);

}  // namespace tessera
