// Continuing texts with a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/generate/continuation.h"
#include "tools/generate/inference.h"
#include "tools/generate/prompts.h"

namespace tessera {

struct GenerateOptions {
  /// A run folder or its model/: config.json, model.safetensors, tokenizer.json.
  std::filesystem::path model;
  /// As InferenceOptions has it.
  std::filesystem::path adapter = {};
  std::string prompt;
  SamplingOptions sampling;
  /// The most tokens to add. A stop token ends a text earlier.
  std::int64_t tokens = 200;
  std::uint64_t seed = 0;
  int threads = 0;
  /// As InferenceOptions has them.
  std::string device = "auto";
  int ranks = 0;
  DType dtype = DType::f32;
  /// The prompts, in place of `prompt`.
  std::vector<Prompt> prompts;
  /// The most prompts that are continued at the same time. Weights are read once for all of them.
  std::int64_t batch = 16;
  /// Each text is a user's message to a chat model, after this system's message if it is not empty.
  bool chat = false;
  std::string system;
  /// Stop tokens next to the model's own; see add_stop_tokens.
  std::vector<std::string> stop;
};

/// Continues every prompt, each as if it were alone. The same options give the same result. When the model's context is full, generation continues from its last half.
///
/// `write`, if it is set, gets the text: the prompt (not with `chat`), each token's text as soon as
/// it is generated, and a line break between two prompts. Without it only texts of prompts need a
/// tokenizer. Raises Error if the model cannot be read, or if the vocabulary lacks a character of a
/// prompt.
std::vector<Generated> generate(const GenerateOptions& options,
                                const std::function<void(std::string_view)>& write);

/// One line of JSON: {"ids": [...]}, with the log-probabilities if `all`, and with the text if there
/// is one. Bytes that are not UTF-8 are replaced in it.
std::string to_json(const Generated& generated, bool all);

}  // namespace tessera
