#include "tools/generate/prompts.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "runtime/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

Prompt prompt_of(const nlohmann::json& value, const fs::path& path, std::size_t index) {
  if (value.is_string()) return {.text = value.get<std::string>()};
  std::optional<std::vector<std::int32_t>> ids = token_ids(value);
  check(ids.has_value(), "{}: prompt {} is {}; expected a text or a list of token ids",
        path.string(), index + 1, excerpt(value.dump()));
  return {.text = {}, .ids = std::move(*ids)};
}

}  // namespace

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const std::string_view part : split(text, ',')) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    check(error == std::errc() && end == part.data() + part.size() && id >= 0,
          "--ids: {} is not a token id; expected ids separated by commas, such as 1,2,3",
          excerpt(part));
    ids.push_back(id);
  }
  return ids;
}

std::optional<std::vector<std::int32_t>> token_ids(const nlohmann::json& value) {
  if (!value.is_array()) return {};
  std::vector<std::int32_t> ids;
  for (const nlohmann::json& id : value) {
    if (!id.is_number_integer() || id < 0 || id >= 0x1p31) return {};
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::vector<Prompt> read_prompts(const fs::path& path) {
  const std::string text = read_text_file(path);
  std::vector<Prompt> prompts;
  if (text.starts_with('[')) {
    const nlohmann::json list = read_json_file(path);
    for (std::size_t i = 0; i < list.size(); ++i) prompts.push_back(prompt_of(list[i], path, i));
  } else {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      prompts.push_back({.text = text.substr(begin, end - begin)});
      begin = end + 1;
    }
  }
  check(!prompts.empty(), "{}: no prompt here", path.string());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    check(!prompts[i].text.empty() || !prompts[i].ids.empty(), "{}: prompt {} is empty",
          path.string(), i + 1);
  }
  return prompts;
}

std::string as_conversation(const ChatTemplate& chat, const std::string& system,
                            const std::string& message) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", message});
  return chat.render(messages);
}

void check_ids(const std::vector<std::int32_t>& ids, std::int64_t vocab_size) {
  check(!ids.empty(), "the prompt is empty: give at least one token to continue");
  for (const std::int32_t id : ids) {
    check(id < vocab_size, "token {} is outside the model's vocabulary of {}", id, vocab_size);
  }
}

}  // namespace tessera
