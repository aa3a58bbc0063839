#include "tools/data/documents.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/input_file.h"
#include "runtime/json.h"
#include "tools/config/yaml_documents.h"
#include "tools/data/json_lines.h"
#include "tools/data/samples.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kBlockBytes = kPartBytes / 4;
constexpr int kDeepest = 64;

bool has_kind(const fs::path& file, std::initializer_list<const char*> kinds) {
  return std::find(kinds.begin(), kinds.end(), file.extension()) != kinds.end();
}

void add_folder(const fs::path& folder, std::vector<fs::path>& files) {
  std::vector<fs::path> found;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    if (entry->path().filename().string().starts_with(".")) {
      if (entry->is_directory()) entry.disable_recursion_pending();
      continue;
    }
    const bool is_text =
        has_kind(entry->path(), {".txt", ".md", ".json", ".jsonl", ".yaml", ".yml"});
    if (is_text && entry->is_regular_file()) found.push_back(entry->path());
  }
  check(!found.empty(), "{} has no .txt, .md, .json, .jsonl, .yaml or .yml file", folder.string());
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

/// The string values of a document.
class Strings {
 public:
  explicit Strings(const std::vector<std::string>& keys) : keys_(keys.begin(), keys.end()) {}

  std::string of(const json& document) {
    const bool has_text = keys_.empty() && document.is_object() && document.contains("text") &&
                          document["text"].is_string();
    if (has_text) return document["text"].get<std::string>();
    check(!keys_.empty() || !looks_like_sample(document),
          "a sample for fine-tuning ({}): to train on its answers, add --answers-only; to take its "
          "strings as plain text, name their keys, as in --keys {}",
          document.contains("messages") ? "messages" : "prompt and completion",
          document.contains("messages") ? "content" : "completion");
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
  if (!value.is_array()) return sink(text_of(value, keys, file.string()), true);
  for (const json& element : value) sink(text_of(element, keys, file.string()), true);
}

void read_yaml(const fs::path& file, const std::vector<std::string>& keys,
               const DocumentSink& sink) {
  std::vector<json> documents;
  try {
    const std::string text = read_text_file(file);
    JsonOfYaml to_json(text.size());
    for (const YAML::Node& node : yaml_documents(text)) documents.push_back(to_json.convert(node));
  } catch (const std::exception& error) {  // yaml-cpp's have the line and column
    fail("{}: {}", file.string(), error.what());
  }
  for (const json& document : documents) hand_over(file, document, keys, sink);
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

void read_text(const fs::path& path, const DocumentReader& reader, const DocumentSink& sink) {
  const InputFile file(path);
  std::string text;
  std::size_t enough = kPartBytes;
  std::int64_t handed_over = 0;
  const auto hand_over = [&](std::string part, bool ends) {
    if (reader.utf8) check_utf8(path, part, handed_over);
    handed_over += static_cast<std::int64_t>(part.size());
    sink(std::move(part), ends);
  };
  for (std::int64_t read = 0; read < file.size();) {
    const auto count = static_cast<std::size_t>(
        std::min<std::int64_t>(file.size() - read, std::int64_t{kBlockBytes}));
    text.resize(text.size() + count);
    file.read(read, std::as_writable_bytes(std::span(text).last(count)));
    read += static_cast<std::int64_t>(count);
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

std::vector<fs::path> find_text_files(const std::vector<fs::path>& inputs) {
  std::vector<fs::path> files;
  for (const fs::path& input : inputs) {
    const std::string name = input.string();
    check(fs::exists(input) || name.find_first_of("*?") == name.npos,
          "there is no file named {}; write the pattern without quotes, so that the shell expands "
          "it",
          name);
    check(fs::exists(input), "there is no file or folder named {}", name);
    if (fs::is_directory(input)) {
      add_folder(input, files);
    } else {
      files.push_back(input);
    }
  }
  return files;
}

void DocumentReader::read(const fs::path& file, const DocumentSink& sink) const {
  if (has_kind(file, {".jsonl"})) {
    return for_each_json_line(file, [&](const json& document, const std::string& place) {
      sink(text_of(document, keys, place), true);
    });
  }
  if (has_kind(file, {".json"})) return hand_over(file, read_json_file(file), keys, sink);
  if (has_kind(file, {".yaml", ".yml"})) return read_yaml(file, keys, sink);
  read_text(file, *this, sink);
}

}  // namespace tessera
