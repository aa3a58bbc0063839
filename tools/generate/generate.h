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
  /// As parse_device (runtime/device.h) reads it.
  std::string device = "auto";
};

/// Hands the prompt and then each piece of the continuation to `write` as it is made. The same
/// options give the same text. When the model's context is full, it goes on from the last half of
/// it. Raises Error if the model cannot be read or the prompt not be spelled.
void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& write);

}  // namespace tessera
