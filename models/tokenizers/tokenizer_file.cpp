#include "models/tokenizers/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/// Whether the entry is missing, null or empty.
bool is_absent(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() || found->empty();
}

std::vector<std::string> vocabulary_of(const nlohmann::json& ids_of_tokens) {
  std::vector<std::string> vocabulary(ids_of_tokens.size());
  std::vector<bool> seen(ids_of_tokens.size());
  for (const auto& [token, id] : ids_of_tokens.items()) {
    check(id.is_number_unsigned() && id.get<std::uint64_t>() < seen.size(),
          "the id of token {} is {}; expected 0 to {}", excerpt(token), excerpt(id.dump()),
          seen.size() - 1);
    const auto place = id.get<std::size_t>();
    check(!seen[place], "two tokens have the id {}", place);
    seen[place] = true;
    vocabulary[place] = token;
  }
  return vocabulary;
}

TokenizerFile tokenizer_from(const nlohmann::json& file) {
  check(file.is_object() && file.contains("model") && file["model"].is_object(),
        "it has no object 'model'; prepare the data with this version of tessera");
  const nlohmann::json& model = file["model"];
  check(model.contains("type") && model["type"] == "BPE" && is_absent(model, "merges"),
        "its model is not BPE without merges; tessera prepare writes such files");
  check(model.contains("vocab") && model["vocab"].is_object(), "its model has no object 'vocab'");
  check(is_absent(file, "added_tokens") && is_absent(file, "normalizer") &&
            is_absent(file, "post_processor"),
        "it has added tokens, a normalizer or a post-processor, which are not supported");
  TokenizerFile tokenizer{.vocabulary = vocabulary_of(model["vocab"])};
  if (!is_absent(file, "pre_tokenizer")) {
    const nlohmann::json& splitter = file["pre_tokenizer"];
    check(splitter.is_object() && splitter.value("type", nlohmann::json()) == "ByteLevel",
          "its pre-tokenizer is not ByteLevel");
    tokenizer.byte_level = true;
  }
  return tokenizer;
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", false}};
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& path) {
  check(std::filesystem::exists(path),
        "{}: no tokenizer here; tessera prepare writes one with the data, and tessera train copies "
        "it next to the model",
        path.string());
  const nlohmann::json file = read_json_file(path);
  try {
    return tokenizer_from(file);
  } catch (const Error& error) {
    fail("{}: not a tokenizer of bytes or characters: {}", path.string(), error.what());
  }
}

void write_tokenizer_file(const std::filesystem::path& path, const TokenizerFile& tokenizer) {
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < tokenizer.vocabulary.size(); ++id) {
    vocabulary[tokenizer.vocabulary[id]] = id;
  }
  // Fuse joins the tokens' texts without spaces between them.
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", tokenizer.byte_level ? byte_level() : Json()},
      {"post_processor", nullptr},
      {"decoder", tokenizer.byte_level ? byte_level() : Json{{"type", "Fuse"}}},
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
  write_file_atomically(path, file.dump(1) + "\n");
}

std::string spelling_of_byte(unsigned char byte) {
  int code_point = byte;
  if (!is_printable(byte)) {
    code_point = 0x100;
    for (int other = 0; other < byte; ++other) code_point += is_printable(other) ? 0 : 1;
  }
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

}  // namespace tessera
