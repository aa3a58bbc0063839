// The replies to /v1/completions and /v1/chat/completions, in OpenAI's form.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/tokenizer.h"
#include "tools/serve/text_job.h"

namespace tessera {

/// The parts that all replies to one request share.
struct ReplyHead {
  bool chat = false;
  /// Unique among the server's replies.
  std::string id;
  /// Seconds since 1970.
  std::int64_t created = 0;
  std::string model;
};

/// A text of a reply, or a part of it in a stream.
struct ReplyText {
  std::int64_t index = 0;
  std::string_view text;
  /// The tokens' log-probabilities as log_probabilities_json returns them; null without any.
  nlohmann::ordered_json log_probabilities;
  /// The reason for the end; none in a stream before the end.
  std::optional<Finish> finish;
};

struct TokenCounts {
  std::int64_t prompt = 0, completion = 0;
};

/// The log-probabilities of a text's tokens. In a completion, tokens have offsets in characters into the
/// text, the first at `offset`, which grows by their texts; the first token of a model's input has no
/// score, so `first`, if there is one, has the value null. A token that is a part of a character has its
/// spelling in the vocabulary.
nlohmann::ordered_json log_probabilities_json(bool chat, const Tokenizer& tokenizer,
                                              const std::vector<TokenScore>& scores,
                                              std::int64_t& offset,
                                              std::optional<std::int32_t> first = {});

/// A whole reply.
std::string reply_json(const ReplyHead& head, const std::vector<ReplyText>& texts,
                       const TokenCounts& counts);
/// A part of a stream. `begins`: the first one of its text.
std::string chunk_json(const ReplyHead& head, const ReplyText& text, bool begins);
/// The part that ends a stream, where the client has asked for counts.
std::string usage_chunk_json(const ReplyHead& head, const TokenCounts& counts);

}  // namespace tessera
