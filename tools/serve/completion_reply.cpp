#include "tools/serve/completion_reply.h"

#include <algorithm>
#include <array>
#include <utility>

#include "models/tokenizers/utf8.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Tokenizer& tokenizer, std::int32_t token) {
  const std::string spelling = tokenizer.spelling(token);
  // The model's vocabulary may be larger than the tokenizer's.
  if (spelling.empty()) return "<" + std::to_string(token) + ">";
  const std::string text = tokenizer.decode(std::array{token});
  const bool whole = is_valid_utf8(text) && text.find("\uFFFD") == text.npos;
  return whole ? text : repaired_utf8(spelling);
}

std::int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
}

/// {"token": ..., "logprob": ..., "bytes": [...]}
Json chat_token(const Tokenizer& tokenizer, std::int32_t token, float log_probability) {
  const std::string text = text_of(tokenizer, token);
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text}, {"logprob", log_probability}, {"bytes", bytes}};
}

Json chat_scores(const Tokenizer& tokenizer, const std::vector<TokenScore>& scores) {
  Json content = Json::array();
  for (const TokenScore& score : scores) {
    Json token = chat_token(tokenizer, score.token, score.log_probability);
    token["top_logprobs"] = Json::array();
    for (const auto& [id, value] : score.likeliest) {
      token["top_logprobs"].push_back(chat_token(tokenizer, id, value));
    }
    content.push_back(std::move(token));
  }
  return {{"content", content}};
}

/// The likeliest tokens' texts and the token's, with their values.
Json top_of(const Tokenizer& tokenizer, const TokenScore& score) {
  Json top = Json::object();
  for (const auto& [id, value] : score.likeliest) top[text_of(tokenizer, id)] = value;
  top[text_of(tokenizer, score.token)] = score.log_probability;
  return top;
}

const char* name_of(Finish finish) {
  return finish == Finish::length ? "length" : "stop";
}

Json usage_of(const TokenCounts& counts) {
  return {{"prompt_tokens", counts.prompt},
          {"completion_tokens", counts.completion},
          {"total_tokens", counts.prompt + counts.completion}};
}

Json head_of(const ReplyHead& head, bool chunk) {
  const char* object = "text_completion";
  if (head.chat) object = chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

/// A member of "choices", with the text as the value of `place`.
Json choice_of(const ReplyText& text, const char* place, Json value) {
  return {{"index", text.index},
          {place, std::move(value)},
          {"logprobs", text.log_probabilities},
          {"finish_reason", text.finish ? Json(name_of(*text.finish)) : Json()}};
}

}  // namespace

Json log_probabilities_json(bool chat, const Tokenizer& tokenizer,
                            const std::vector<TokenScore>& scores, std::int64_t& offset,
                            std::optional<std::int32_t> first) {
  if (chat) return chat_scores(tokenizer, scores);
  Json tokens = Json::array(), values = Json::array(), top = Json::array(), offsets = Json::array();
  const auto add = [&](std::int32_t token, Json value, Json likeliest) {
    tokens.push_back(text_of(tokenizer, token));
    values.push_back(std::move(value));
    top.push_back(std::move(likeliest));
    offsets.push_back(offset);
    offset += characters_in(tokens.back().get_ref<const std::string&>());
  };
  if (first) add(*first, Json(), Json());
  for (const TokenScore& score : scores) {
    add(score.token, score.log_probability, top_of(tokenizer, score));
  }
  return {{"tokens", tokens},
          {"token_logprobs", values},
          {"top_logprobs", top},
          {"text_offset", offsets}};
}

std::string reply_json(const ReplyHead& head, const std::vector<ReplyText>& texts,
                       const TokenCounts& counts) {
  Json reply = head_of(head, /*chunk=*/false);
  reply["choices"] = Json::array();
  for (const ReplyText& text : texts) {
    reply["choices"].push_back(
        head.chat ? choice_of(text, "message", {{"role", "assistant"}, {"content", text.text}})
                  : choice_of(text, "text", text.text));
  }
  reply["usage"] = usage_of(counts);
  return reply.dump();
}

std::string chunk_json(const ReplyHead& head, const ReplyText& text, bool begins) {
  Json delta = Json::object();
  if (begins) delta["role"] = "assistant";
  if (begins || !text.text.empty()) delta["content"] = text.text;
  Json chunk = head_of(head, /*chunk=*/true);
  chunk["choices"] = Json::array({head.chat ? choice_of(text, "delta", std::move(delta))
                                            : choice_of(text, "text", text.text)});
  return chunk.dump();
}

std::string usage_chunk_json(const ReplyHead& head, const TokenCounts& counts) {
  Json chunk = head_of(head, /*chunk=*/true);
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_of(counts);
  return chunk.dump();
}

}  // namespace tessera
