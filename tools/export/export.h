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
  /// An adapter on the model, or empty; `model` itself may be an adapter, or a run that has trained one.
  std::filesystem::path adapter = {};
  /// Writes the model with the adapter added to its weights; else the adapter alone.
  bool merge = false;
  /// Must not hold a model yet.
  std::filesystem::path out;
  /// None: every tensor keeps its stored dtype, and f32 in the place of 8 bits. e4m3: Hugging Face's form of 8 bits
  /// (models/fp8_form.h) for weights of linear layers with extents that are multiples of 128, and bf16 for all others.
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
/// An adapter without `merge` becomes adapter_config.json and adapter_model.safetensors, which PEFT loads.
///
/// At most one tensor is in memory. Raises Error if the model cannot be read or `out` holds one.
/// Returns left_out(), or a warning that PEFT has no such adapters for experts.
std::string export_model(const ExportOptions& options);

/// A warning if other programs have no place for a part of the model, else an empty text.
std::string left_out(const LanguageModel& model);

/// write(model), where `model` is a folder "OUT.whole" with the averages of train.ema as weights. They come from
/// the newest checkpoint at `run` (checkpoints_at). The folder is removed after the call. Returns the warning.
std::string export_averages(
    const std::filesystem::path& run, const std::filesystem::path& out,
    const std::function<std::string(const std::filesystem::path& model)>& write);

}  // namespace tessera
