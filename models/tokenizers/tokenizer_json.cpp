#include "models/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/tokenizers/fields.h"
#include "models/tokenizers/tokenizer_file.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kGreatestId = std::numeric_limits<std::int32_t>::max();

TextMap<std::int32_t> ids_from(const json& vocabulary) {
  check(vocabulary.is_object(), "model: 'vocab' is not an object");
  TextMap<std::int32_t> ids;
  ids.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kGreatestId) {
      fail("the id of token {} is {}; expected a whole number of 31 bits", excerpt(token),
           excerpt(id.dump()));
    }
    ids.emplace(token, id.get<std::int32_t>());
  }
  return ids;
}

/// "left right".
std::pair<std::string, std::string> merge_from(const std::string& line) {
  const std::size_t space = line.find(' ');
  if (space == line.npos || space != line.rfind(' ')) {
    fail("the merge {} is not two tokens with a space between them", excerpt(line));
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

Bpe::Merges merges_from(const json& list) {
  check(list.is_array(), "model: 'merges' is not a list");
  Bpe::Merges merges;
  merges.reserve(list.size());
  for (const json& merge : list) {
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      if (!line.starts_with("#version")) merges.push_back(merge_from(line));
    } else {
      const bool is_pair =
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
      if (!is_pair) fail("the merge {} is not two tokens", excerpt(merge.dump()));
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    }
  }
  return merges;
}

Bpe bpe_from(const Fields& model, bool byte_level) {
  const std::string type = model.text("type", "BPE");
  check(type == "BPE", "its model is {}; only BPE is supported", excerpt(type));
  const json& dropout = model.at("dropout");
  check(dropout.is_null() || dropout == 0.0, "model: 'dropout' is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    check(model.is_absent(key), "model: '{}' is not supported", key);
  }
  BpeOptions options{.byte_level = byte_level,
                     .ignore_merges = model.flag("ignore_merges", false),
                     .byte_fallback = model.flag("byte_fallback", false),
                     .fuse_unknown = model.flag("fuse_unk", false)};
  if (!model.at("unk_token").is_null()) options.unknown = model.text("unk_token");
  return {ids_from(model.at("vocab")), merges_from(model.at("merges")), options};
}

std::vector<AddedToken> added_tokens_from(const json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  check(list.is_array(), "'added_tokens' is not a list");
  for (const json& entry : list) {
    const Fields fields(entry, "added_tokens");
    const bool special = fields.flag("special", false);
    check(!fields.text("content").empty(), "an added token is empty");
    tokens.push_back({.id = static_cast<std::int32_t>(fields.whole("id", kGreatestId)),
                      .text = fields.text("content"),
                      .single_word = fields.flag("single_word", false),
                      .takes_left = fields.flag("lstrip", false),
                      .takes_right = fields.flag("rstrip", false),
                      .normalized = fields.flag("normalized", !special),
                      .special = special});
  }
  return tokens;
}

/// The ids of a special token of a template.
std::vector<std::int32_t> special_ids(const Fields& post_processor, const std::string& name) {
  const Fields specials = post_processor.object("special_tokens");
  check(specials.at(name.c_str()).is_object(), "the template's token {} is not described",
        excerpt(name));
  const json& ids = Fields(specials.at(name.c_str()), "special_tokens").at("ids");
  check(ids.is_array(), "special_tokens: 'ids' is not a list");
  std::vector<std::int32_t> made;
  for (const json& id : ids) {
    check(id.is_number_unsigned() && id.get<std::uint64_t>() <= kGreatestId,
          "special_tokens: 'ids' has {}", excerpt(id.dump()));
    made.push_back(id.get<std::int32_t>());
  }
  return made;
}

void append_template(const Fields& fields, BpeTokenizer::Parts& parts) {
  const json& single = fields.at("single");
  check(single.is_array(), "post_processor: 'single' is not a list");
  bool after_text = false;
  for (const json& piece : single) {
    const Fields entry(piece, "post_processor");
    if (!entry.at("Sequence").is_null()) {
      check(!after_text, "post_processor: the template has the text twice");
      after_text = true;
      continue;
    }
    const auto ids = special_ids(fields, entry.object("SpecialToken").text("id"));
    auto& side = after_text ? parts.after : parts.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
}

void append_post_processor(const json& description, BpeTokenizer::Parts& parts) {
  if (description.is_null()) return;
  const Fields fields(description, "post_processor");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const json& processors = fields.at("processors");
    check(processors.is_array(), "post_processor: 'processors' is not a list");
    for (const json& one : processors) append_post_processor(one, parts);
  } else if (type == "TemplateProcessing") {
    append_template(fields, parts);
  } else {
    // ByteLevel changes offsets only.
    check(type == "ByteLevel", "the post-processor {} is not supported", excerpt(type));
  }
}

json read_merges(const fs::path& path) {
  const std::string text = read_text_file(path);
  check(is_valid_utf8(text), "{}: not valid UTF-8", path.string());
  json merges = json::array();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) merges.push_back(std::move(line));
  }
  return merges;
}

}  // namespace

std::unique_ptr<BpeTokenizer> read_tokenizer_json(const json& description, std::string file,
                                                  std::string config) {
  const Fields fields(description, "tokenizer.json");
  const Fields model = fields.object("model");
  SplitterChain splitters = make_splitters(fields.at("pre_tokenizer"));
  const bool byte_level = splitters.byte_level;
  BpeTokenizer::Parts parts{.added_tokens = added_tokens_from(fields.at("added_tokens")),
                            .normalizers = make_normalizers(fields.at("normalizer")),
                            .splitters = std::move(splitters),
                            .bpe = bpe_from(model, byte_level),
                            .decoders = make_decoders(fields.at("decoder")),
                            .file = std::move(file),
                            .config = std::move(config)};
  append_post_processor(fields.at("post_processor"), parts);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

std::unique_ptr<BpeTokenizer> read_gpt2_files(const fs::path& directory) {
  json description = {{"version", "1.0"},
                      {"added_tokens", json::array()},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", byte_level_stage(/*use_regex=*/true)},
                      {"post_processor", nullptr},
                      {"decoder", byte_level_stage(/*use_regex=*/true)},
                      {"model",
                       {{"type", "BPE"},
                        {"vocab", read_json_file(directory / "vocab.json")},
                        {"merges", read_merges(directory / "merges.txt")}}}};
  std::string file = description.dump() + "\n";
  return read_tokenizer_json(description, std::move(file));
}

}  // namespace tessera
