#include "tools/generate/stop_tokens.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/chat_template.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::int32_t id_of(const nlohmann::json& value, const fs::path& path) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const bool fits = value.is_number_integer() && value.get<double>() >= 0 &&
                    value.get<double>() <= static_cast<double>(kMost);
  check(fits, "{}: eos_token_id is {}; expected a token id or a list of them", path.string(),
        excerpt(value.dump()));
  return value.get<std::int32_t>();
}

StopTokens eos_tokens_of(const fs::path& folder) {
  StopTokens stop;
  for (const char* const name : {kGenerationConfig, "config.json"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) continue;
    const nlohmann::json config = read_json_file(path);
    check(config.is_object(), "{}: not a JSON object", path.string());
    const auto ids = config.find("eos_token_id");
    if (ids == config.end() || ids->is_null()) continue;
    if (!ids->is_array()) return {id_of(*ids, path)};
    for (const nlohmann::json& id : *ids) stop.insert(id_of(id, path));
    return stop;
  }
  return stop;
}

}  // namespace

StopTokens stop_tokens_of(const fs::path& folder, const Tokenizer* tokenizer) {
  StopTokens stop = eos_tokens_of(folder);
  if (tokenizer == nullptr) return stop;
  const auto chat = ChatTemplate::find(folder);
  if (!chat) return stop;
  const std::vector<std::int32_t> end = tokenizer->encode(chat->end_of_turn());
  if (end.size() == 1) stop.insert(end.front());
  return stop;
}

std::string generation_config(const fs::path& base, const StopTokens& stop) {
  const fs::path path = base / kGenerationConfig;
  nlohmann::json config = nlohmann::json::object();
  if (!base.empty() && fs::exists(path)) config = read_json_file(path);
  config["eos_token_id"] = stop;
  return config.dump(2) + "\n";
}

void add_stop_tokens(StopTokens& stop, const std::vector<std::string>& names,
                     const Tokenizer* tokenizer) {
  for (const std::string& name : names) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    const bool is_id = error == std::errc() && end == name.data() + name.size() && id >= 0;
    if (!is_id) {
      check(tokenizer != nullptr,
            "--stop {}: not a token id, and without a tokenizer there are "
            "no spellings",
            excerpt(name));
      const std::vector<std::int32_t> tokens = tokenizer->encode(name);
      check(tokens.size() == 1,
            "--stop {}: it is {} tokens; expected a token id or the spelling of "
            "one token",
            excerpt(name), tokens.size());
      id = tokens.front();
    }
    stop.insert(id);
  }
}

}  // namespace tessera
