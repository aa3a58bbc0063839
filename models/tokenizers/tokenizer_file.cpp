#include "models/tokenizers/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// Whether the entry is missing, null or empty.
bool is_absent(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() || found->empty();
}

std::vector<std::string> vocabulary_of(const nlohmann::json& ids_of_tokens) {
  std::vector<std::string> vocabulary(ids_of_tokens.size());
  std::vector<bool> seen(ids_of_tokens.size());
  for (const auto& [token, id] : ids_of_tokens.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= seen.size()) {
      fail("the id of token {} is {}; expected 0 to {}", excerpt(token), excerpt(id.dump()),
           seen.size() - 1);
    }
    const auto place = id.get<std::size_t>();
    check(!seen[place], "two tokens have the id {}", place);
    seen[place] = true;
    vocabulary[place] = token;
  }
  return vocabulary;
}

}  // namespace

std::optional<TokenizerFile> tokenizer_file_from(const nlohmann::json& file) {
  if (!file.is_object() || !file.contains("model") || !file["model"].is_object()) return {};
  const nlohmann::json& model = file["model"];
  const bool without_merges = model.value("type", nlohmann::json()) == "BPE" &&
                              is_absent(model, "merges") && model.contains("vocab") &&
                              model["vocab"].is_object();
  const bool other_stages = !is_absent(file, "added_tokens") || !is_absent(file, "normalizer") ||
                            !is_absent(file, "post_processor") || !is_absent(model, "unk_token");
  if (!without_merges || other_stages) return {};
  TokenizerFile tokenizer;
  if (!is_absent(file, "pre_tokenizer")) {
    // A file of bytes differs from another ByteLevel one in its vocabulary.
    const nlohmann::json& splitter = file["pre_tokenizer"];
    if (splitter != nlohmann::json(byte_level_stage(false)) || model["vocab"].size() != 256)
      return {};
    tokenizer.byte_level = true;
  }
  tokenizer.vocabulary = vocabulary_of(model["vocab"]);
  return tokenizer;
}

nlohmann::ordered_json byte_level_stage(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", use_regex}};
}

void write_tokenizer_file(const std::filesystem::path& directory, const TokenizerFile& tokenizer) {
  Json vocabulary = Json::object();
  // An ordered object is a list, and looks through all of it for a key. These keys differ.
  Json::object_t::Container& entries = vocabulary.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < tokenizer.vocabulary.size(); ++id) {
    entries.emplace_back(tokenizer.vocabulary[id], id);
  }
  // Fuse joins the tokens' texts without spaces between them.
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", tokenizer.byte_level ? byte_level_stage(false) : Json()},
      {"post_processor", nullptr},
      {"decoder", tokenizer.byte_level ? byte_level_stage(false) : Json{{"type", "Fuse"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocabulary},
        {"merges", Json::array()}}},
  };
  write_file_atomically(directory / Tokenizer::kFileName, file.dump(1) + "\n");
  write_tokenizer_config(directory, "");
}

void write_tokenizer_config(const std::filesystem::path& directory, const std::string& text) {
  const Json complete = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"clean_up_tokenization_spaces", false}};
  write_file_atomically(directory / Tokenizer::kConfigName,
                        text.empty() ? complete.dump(1) + "\n" : text);
}

}  // namespace tessera
