#include "tools/serve/completion_request.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/json.h"
#include "tools/data/json_entries.h"
#include "tools/serve/api_error.h"
#include "tools/serve/request_fields.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostTexts = 128;
constexpr std::int64_t kMostLikeliest = 20;
constexpr std::size_t kMostStops = 16;

json parsed(std::string_view body) {
  try {
    return parse_json(body, /*deepest=*/64, "the request");
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

Prompt prompt_of(const json& value) {
  if (value.is_string()) return {.text = value.get<std::string>(), .ids = {}};
  std::optional<std::vector<std::int32_t>> ids = token_ids(value);
  check_request(ids && !ids->empty(), "a prompt is {}; expected a text or a list of token ids",
                shown(value));
  return {.text = {}, .ids = std::move(*ids)};
}

std::vector<Prompt> prompts_of(RequestFields& fields) {
  const json* const prompt = fields.find("prompt");
  check_request(prompt != nullptr, "'prompt' is missing");
  const bool is_list = prompt->is_array() && !prompt->empty() &&
                       (prompt->front().is_string() || prompt->front().is_array());
  if (!is_list) return {prompt_of(*prompt)};
  std::vector<Prompt> prompts;
  for (const json& one : *prompt) prompts.push_back(prompt_of(one));
  return prompts;
}

/// A text, or a list of parts {"type": "text", "text": ...}.
std::string content_of(RequestFields& message) {
  const json* const content = message.find("content");
  if (content == nullptr || !content->is_array()) return message.text("content");
  std::string text;
  for (const json& one : *content) {
    RequestFields part(one, "a part of a message");
    const std::string type = part.text("type");
    check_request(type == "text", "a part of a message has the type {}; expected text",
                  excerpt(type));
    text += part.text("text");
    part.finish();
  }
  return text;
}

std::vector<ChatMessage> messages_of(RequestFields& fields) {
  const json* const messages = fields.find("messages");
  check_request(messages != nullptr && messages->is_array() && !messages->empty(),
                "'messages' is missing; expected a list of messages");
  std::vector<ChatMessage> result;
  for (const json& one : *messages) {
    RequestFields message(one, "a message");
    const std::string role = message.text("role");  // "developer" is the newer name of "system"
    result.push_back(
        {.role = role == "developer" ? "system" : role, .content = content_of(message)});
    message.ignore("name");
    message.finish();
  }
  return result;
}

std::vector<std::string> stops_of(RequestFields& fields) {
  const json* const stop = fields.find("stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) return {stop->get<std::string>()};
  bool is_list = stop->is_array() && stop->size() <= kMostStops;
  for (const json& one : *stop) is_list = is_list && one.is_string();
  check_request(is_list, "'stop' is {}; expected a text or a list of at most {} texts",
                shown(*stop), kMostStops);
  return stop->get<std::vector<std::string>>();
}

SamplingOptions sampling_of(RequestFields& fields) {
  SamplingOptions sampling;
  constexpr double kHottest = 1e6;
  sampling.temperature = fields.number("temperature", 0.0, kHottest).value_or(1.0);
  sampling.top_p = fields.number("top_p", std::numeric_limits<double>::min(), 1.0).value_or(1.0);
  sampling.top_k = fields.integer("top_k", 0, kMost).value_or(0);
  return sampling;
}

std::optional<std::int64_t> likeliest_of(RequestFields& fields, bool chat) {
  if (!chat) return fields.integer("logprobs", 0, kMostLikeliest);
  const bool asked = fields.boolean("logprobs");
  const auto likeliest = fields.integer("top_logprobs", 0, kMostLikeliest);
  check_request(asked || !likeliest, "'top_logprobs' needs 'logprobs': true");
  if (!asked) return std::nullopt;
  return likeliest.value_or(0);
}

void read_stream(RequestFields& fields, CompletionRequest& request) {
  request.stream = fields.boolean("stream");
  const json* const options = fields.find("stream_options");
  if (options == nullptr) return;
  RequestFields own(*options, "'stream_options'");
  request.stream_usage = own.boolean("include_usage");
  own.finish();
}

void refuse_what_is_absent(RequestFields& fields) {
  for (const char* const name : {"presence_penalty", "frequency_penalty"}) {
    fields.refuse_unless(name, 0);
  }
  for (const char* const name : {"tools", "functions"}) fields.refuse_unless(name, json::array());
  fields.refuse_unless("tool_choice", "none");
  fields.refuse_unless("logit_bias", json::object());
  fields.refuse_unless("suffix", "");
  fields.refuse_unless("best_of", 1);
  fields.refuse_unless("response_format", {{"type", "text"}});
  for (const char* const name : {"user", "metadata", "store", "service_tier"}) fields.ignore(name);
}

}  // namespace

CompletionRequest read_completion_request(std::string_view body, bool chat) {
  const json object = parsed(body);
  RequestFields fields(object);
  CompletionRequest request = {.chat = chat, .model = fields.text("model")};
  if (chat) {
    request.messages = messages_of(fields);
    request.tokens = fields.integer("max_completion_tokens", 1, kMost);
    const auto older = fields.integer("max_tokens", 1, kMost);
    if (!request.tokens) request.tokens = older;
  } else {
    request.prompts = prompts_of(fields);
    request.tokens = fields.integer("max_tokens", 0, kMost).value_or(16);
    request.echo = fields.boolean("echo");
  }
  request.sampling = sampling_of(fields);
  request.n = fields.integer("n", 1, kMostTexts).value_or(1);
  request.seed = fields.integer("seed", 0, std::numeric_limits<std::int64_t>::max() / 2);
  request.stop = stops_of(fields);
  request.likeliest = likeliest_of(fields, chat);
  read_stream(fields, request);
  refuse_what_is_absent(fields);
  fields.finish();
  return request;
}

}  // namespace tessera
