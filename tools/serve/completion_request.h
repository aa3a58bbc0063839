// The body of a request to /v1/completions or /v1/chat/completions.
//
// The fields are those of OpenAI's API reference, and top_k. A field that is null is absent. Fields that
// change nothing here, such as `user`, are ignored. Fields that ask for more than the server can do, such
// as `tools`, are refused unless they ask for nothing, and unknown fields always are: a text never
// differs silently from the one that was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat_template.h"
#include "tools/generate/prompts.h"
#include "tools/generate/sampler.h"

namespace tessera {

struct CompletionRequest {
  bool chat = false;
  /// The model's name; empty if the request names none.
  std::string model;
  /// A completion has at least one.
  std::vector<Prompt> prompts;
  /// A chat has at least one.
  std::vector<ChatMessage> messages;
  /// The most new tokens.
  std::optional<std::int64_t> tokens;
  SamplingOptions sampling;
  /// Texts for each prompt.
  std::int64_t n = 1;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  /// Log-probabilities are asked for, with so many of the likeliest tokens.
  std::optional<std::int64_t> likeliest;
  /// The prompt is part of the text.
  bool echo = false;
  bool stream = false;
  /// A stream ends with the numbers of tokens.
  bool stream_usage = false;
};

/// Raises ApiError of status 400 that names the field.
CompletionRequest read_completion_request(std::string_view body, bool chat);

}  // namespace tessera
