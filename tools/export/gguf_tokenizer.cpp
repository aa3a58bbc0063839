#include "tools/export/gguf_tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "models/tokenizers/byte_spelling.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/tokenizer_file.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// llama.cpp's kinds of tokens.
constexpr std::int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

/// The regular expressions of published tokenizers, with llama.cpp's names for them.
constexpr std::pair<std::string_view, std::string_view> kCuts[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
};

/// The stages of a pre_tokenizer.
std::vector<Json> stages_of(const Json& splitter) {
  if (!splitter.is_object()) return {};
  if (splitter.value("type", "") != "Sequence") return {splitter};
  return splitter.at("pretokenizers").get<std::vector<Json>>();
}

/// llama.cpp's name for the way in which the tokenizer cuts text before byte-pair encoding.
std::string cut_of(const fs::path& path, const Json& tokenizer) {
  std::string regex;
  bool byte_level = false;
  for (const Json& stage : stages_of(tokenizer.value("pre_tokenizer", Json()))) {
    const std::string type = stage.value("type", "");
    if (type == "Split") regex = stage.at("pattern").value("Regex", "?");
    if (type != "ByteLevel") continue;
    byte_level = true;
    if (regex.empty() && stage.value("use_regex", true)) return "gpt-2";
  }
  check(byte_level,
        "{}: this is not byte-level BPE, the only kind of tokenizer that is written to GGUF; use "
        "--format hf",
        path.string());
  for (const auto& [known, name] : kCuts) {
    if (regex == known) return std::string(name);
  }
  // Without merges every byte is a token, wherever words end.
  if (tokenizer.at("model").value("merges", Json::array()).empty()) return "gpt-2";
  fail(
      "{}: llama.cpp has no name for the regular expression {} known here (those of GPT-2, Llama 3 "
      "and Qwen are); use --format hf",
      path.string(), excerpt(regex));
}

struct Tokens {
  std::vector<std::string> spellings;
  std::vector<std::int32_t> kinds;
};

Tokens no_tokens(std::int64_t vocab_size) {
  Tokens tokens;
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    tokens.spellings.push_back(fmt::format("[PAD{}]", id));
    tokens.kinds.push_back(kUnused);
  }
  return tokens;
}

void place(const fs::path& path, Tokens& tokens, std::size_t id, const std::string& spelling,
           std::int32_t kind) {
  check(
      id < tokens.spellings.size(),
      "{}: token {} has the id {}, and the model has {} tokens; this tokenizer is of another model",
      path.string(), excerpt(spelling), id, tokens.spellings.size());
  tokens.spellings[id] = spelling;
  tokens.kinds[id] = kind;
}

Tokens tokens_of(const fs::path& path, const Json& tokenizer, std::int64_t vocab_size) {
  Tokens tokens = no_tokens(vocab_size);
  for (const auto& [token, id] : tokenizer.at("model").at("vocab").items()) {
    place(path, tokens, id.get<std::size_t>(), token, kNormal);
  }
  for (const Json& added : tokenizer.value("added_tokens", Json::array())) {
    place(path, tokens, added.at("id").get<std::size_t>(), added.at("content").get<std::string>(),
          added.value("special", false) ? kControl : kUserDefined);
  }
  return tokens;
}

/// Characters as bytes; none if one is not ASCII.
std::optional<Tokens> characters_as_bytes(const TokenizerFile& characters, const fs::path& path,
                                          std::int64_t vocab_size) {
  Tokens tokens = no_tokens(vocab_size);
  for (std::size_t id = 0; id < characters.vocabulary.size(); ++id) {
    const std::string& character = characters.vocabulary[id];
    if (character.size() != 1) return {};
    place(path, tokens, id, spelling_of_byte(static_cast<unsigned char>(character[0])), kNormal);
  }
  return tokens;
}

/// Merges as pairs of tokens with a space between them; files have them as texts or as lists.
std::vector<std::string> merges_of(const Json& tokenizer) {
  std::vector<std::string> merges;
  for (const Json& merge : tokenizer.at("model").value("merges", Json::array())) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  return merges;
}

void add_special_tokens(GgufKeys& keys, const fs::path& folder, const Tokenizer& tokenizer) {
  const Json config = read_json_file(folder / "config.json");
  constexpr std::pair<const char*, const char*> kIds[] = {{"bos_token_id", "bos_token_id"},
                                                          {"eos_token_id", "eos_token_id"},
                                                          {"pad_token_id", "padding_token_id"}};
  for (const auto& [name, key] : kIds) {
    Json id = config.value(name, Json());
    if (id.is_array() && !id.empty()) id = id[0];  // llama.cpp finds the others by their spelling
    if (id.is_number_unsigned()) {
      keys.emplace_back(fmt::format("tokenizer.ggml.{}", key), id.get<std::uint32_t>());
    }
  }
  const std::vector<std::int32_t> around = tokenizer.with_special_tokens({});
  keys.emplace_back("tokenizer.ggml.add_bos_token",
                    !around.empty() && config.value("bos_token_id", Json()) == around.front());
}

void add_chat_template(GgufKeys& keys, const fs::path& folder) {
  Json text;
  if (fs::exists(folder / Tokenizer::kConfigName)) {
    text = read_json_file(folder / Tokenizer::kConfigName).value("chat_template", Json());
  }
  if (fs::exists(folder / "chat_template.jinja")) {
    text = read_text_file(folder / "chat_template.jinja");
  }
  if (text.is_string()) keys.emplace_back("tokenizer.chat_template", text.get<std::string>());
}

}  // namespace

GgufKeys tokenizer_keys(const fs::path& folder, std::int64_t vocab_size) {
  const fs::path path = folder / Tokenizer::kFileName;
  check(fs::exists(path), "{}: a GGUF file holds its tokenizer, and this file is missing",
        path.string());
  const auto tokenizer = Tokenizer::load(folder);  // checks the file
  const Json file = read_json_file(path);
  std::optional<Tokens> tokens;
  if (const auto plain = tokenizer_file_from(file); plain && !plain->byte_level) {
    tokens = characters_as_bytes(*plain, path, vocab_size);
  }
  const std::string cut = tokens ? "gpt-2" : cut_of(path, file);
  if (!tokens) tokens = tokens_of(path, file, vocab_size);
  GgufKeys keys = {{"tokenizer.ggml.model", "gpt2"},
                   {"tokenizer.ggml.pre", cut},
                   {"tokenizer.ggml.tokens", std::move(tokens->spellings)},
                   {"tokenizer.ggml.token_type", std::move(tokens->kinds)},
                   {"tokenizer.ggml.merges", merges_of(file)}};
  add_special_tokens(keys, folder, *tokenizer);
  add_chat_template(keys, folder);
  return keys;
}

}  // namespace tessera
