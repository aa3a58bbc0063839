#include "tools/data/documents.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/config/yaml_documents.h"
#include "tools/data/json_lines.h"
#include "tools/data/samples.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kDeepest = 64;

/// The string values of a document.
class Strings {
 public:
  explicit Strings(const std::vector<std::string>& keys) : keys_(keys.begin(), keys.end()) {}

  std::string of(const json& document) {
    const bool has_text = keys_.empty() && document.is_object() && document.contains("text") &&
                          document["text"].is_string();
    if (has_text) return document["text"].get<std::string>();
    const std::pair<const char*, const char*> kind =
        document.contains("chosen")     ? std::pair("chosen and rejected", "chosen")
        : document.contains("messages") ? std::pair("messages", "content")
                                        : std::pair("prompt and completion", "completion");
    check(!keys_.empty() || !looks_like_sample(document),
          "a sample for fine-tuning ({}): to train on its answers, add --answers-only; to take its "
          "strings as plain text, name their keys, as in --keys {}",
          kind.first, kind.second);
    collect(document, keys_.empty());
    return std::move(text_);
  }

 private:
  void collect(const json& value, bool wanted) {
    if (value.is_string()) {
      if (!wanted) return;
      if (found_) text_ += '\n';
      found_ = true;
      text_ += value.get_ref<const std::string&>();
    } else if (value.is_object()) {
      for (const auto& [key, member] : value.items()) {
        collect(member, wanted || keys_.contains(key));
      }
    } else if (value.is_array()) {
      for (const json& element : value) collect(element, wanted);
    }
  }

  const std::set<std::string> keys_;
  std::string text_;
  bool found_ = false;
};

/// The scalars that YAML 1.2 reads as no string: numbers, truth values and nothing.
bool is_plain_value(const std::string& scalar) {
  static const std::set<std::string> names = {"",     "~",    "null",  "Null",  "NULL",  "true",
                                              "True", "TRUE", "false", "False", "FALSE", ".nan",
                                              ".NaN", ".NAN", ".inf",  ".Inf",  "-.inf", "-.Inf"};
  if (names.contains(scalar)) return true;
  const char* const first = scalar.data() + (scalar.front() == '+' ? 1 : 0);
  const char* const last = scalar.data() + scalar.size();
  double number = 0.0;
  const auto [end, error] = std::from_chars(first, last, number);
  return error == std::errc() && end == last;
}

/// YAML as JSON. An alias is written out, so a few lines can stand for more values than memory holds.
class JsonOfYaml {
 public:
  /// For a text of so many bytes.
  explicit JsonOfYaml(std::size_t bytes) : left_(kMostGrowth * bytes) {}

  json convert(const YAML::Node& node, int depth = 0) {
    check(depth <= kDeepest, "it is nested more than {} levels deep", kDeepest);
    spend(1);
    if (node.IsSequence()) {
      json list = json::array();
      for (const YAML::Node& element : node) list.push_back(convert(element, depth + 1));
      return list;
    }
    if (node.IsMap()) {
      json object = json::object();
      for (const auto& entry : node) {
        spend(entry.first.Scalar().size());
        object[entry.first.Scalar()] = convert(entry.second, depth + 1);
      }
      return object;
    }
    const bool quoted = node.Tag() == "!";
    if (!node.IsScalar() || (!quoted && is_plain_value(node.Scalar()))) return nullptr;
    check(is_valid_utf8(node.Scalar()), "line {}: not valid UTF-8", node.Mark().line + 1);
    spend(node.Scalar().size());
    return node.Scalar();
  }

 private:
  static constexpr std::size_t kMostGrowth = 16;

  void spend(std::size_t bytes) {
    check(bytes <= left_, "with its aliases written out it is more than {} times as long",
          kMostGrowth);
    left_ -= bytes;
  }

  std::size_t left_;
};

/// The text of a document. `place`: where it is, for messages.
std::string text_of(const json& document, const std::vector<std::string>& keys,
                    const std::string& place) {
  try {
    return Strings(keys).of(document);
  } catch (const Error& error) {
    fail("{}: {}", place, error.what());
  }
}

void hand_over(const fs::path& file, const json& value, const std::vector<std::string>& keys,
               const DocumentSink& sink) {
  const std::string place = file.string();
  if (!value.is_array()) return sink(text_of(value, keys, place), true, place);
  for (const json& element : value) sink(text_of(element, keys, place), true, place);
}

json read_json(InputStream& file) {
  const std::string text = file.rest();
  try {
    return parse_json(text);
  } catch (const Error& error) {
    fail("{}: {}", file.path().string(), error.what());
  }
}

void read_yaml(InputStream& file, const std::vector<std::string>& keys, const DocumentSink& sink) {
  std::vector<json> documents;
  const std::string text = file.rest();
  try {
    JsonOfYaml to_json(text.size());
    for (const YAML::Node& node : yaml_documents(text)) documents.push_back(to_json.convert(node));
  } catch (const std::exception& error) {  // yaml-cpp's have the line and column
    fail("{}: {}", file.path().string(), error.what());
  }
  for (const json& document : documents) hand_over(file.path(), document, keys, sink);
}

/// Raises Error with the first byte of the file that is not UTF-8. `offset`: of the text in the file.
void check_utf8(const fs::path& file, std::string_view text, std::int64_t offset) {
  if (is_valid_utf8(text)) return;
  std::size_t i = 0;
  try {
    while (i < text.size()) i += code_point_at(text, i).bytes;
  } catch (const Error&) {
    fail("{}: not valid UTF-8 at byte {} (0x{:02x}); --tokenizer bytes takes any file",
         file.string(), offset + static_cast<std::int64_t>(i),
         static_cast<unsigned>(static_cast<unsigned char>(text[i])));
  }
}

void read_text(InputStream& file, const DocumentReader& reader, const DocumentSink& sink) {
  std::string text;
  std::size_t enough = kPartBytes;
  std::int64_t handed_over = 0;
  const std::string place = file.path().string();
  const auto hand_over = [&](std::string part, bool ends) {
    if (reader.utf8) check_utf8(file.path(), part, handed_over);
    handed_over += static_cast<std::int64_t>(part.size());
    sink(std::move(part), ends, place);
  };
  while (file.append_to(text, kBlockBytes)) {
    if (text.size() < enough) continue;
    const std::size_t cut = reader.find_cut(text);
    enough = cut > 0 ? kPartBytes : 2 * text.size();
    if (cut == 0) continue;
    hand_over(text.substr(0, cut), false);
    text.erase(0, cut);
  }
  hand_over(std::move(text), true);
}

}  // namespace

bool comes_whole(const std::string& kind) {
  return kind == ".jsonl" || kind == ".json" || kind == ".yaml" || kind == ".yml";
}

void DocumentReader::read(InputStream& file, const DocumentSink& sink) const {
  const std::string& kind = file.kind();
  if (kind == ".jsonl") {
    const auto take = [&](const json& document, const std::string& place) {
      sink(text_of(document, keys, place), true, place);
    };
    return for_each_json_line(file, take, left_out);
  }
  if (kind == ".json") return hand_over(file.path(), read_json(file), keys, sink);
  if (kind == ".yaml" || kind == ".yml") return read_yaml(file, keys, sink);
  read_text(file, *this, sink);
}

}  // namespace tessera
