// Continuing a text with a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "tools/generate/sampler.h"

namespace tessera {

struct GenerateOptions {
  /// A run folder or its model/: config.json, model.safetensors, tokenizer.json.
  std::filesystem::path model;
  std::string prompt;
  SamplingOptions sampling;
  std::int64_t tokens = 200;
  std::uint64_t seed = 0;
  int threads = 0;
  /// A text that parse_device (runtime/device.h) reads.
  std::string device = "auto";
};

/// Calls `write` with the prompt, then with each token's text as soon as it is generated. The same
/// options give the same text. When the model's context is full, generation continues from its last
/// half. Raises Error if the model cannot be read, or if the vocabulary lacks a character of the
/// prompt.
void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& write);

}  // namespace tessera
