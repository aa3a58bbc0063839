#include "models/tokenizers/tokenizer.h"

#include <nlohmann/json.hpp>

#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "models/tokenizers/tokenizer_file.h"
#include "models/tokenizers/tokenizer_json.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Tokenizer> tokenizer_from(const fs::path& directory) {
  std::string text = read_text_file(directory / Tokenizer::kFileName);
  const nlohmann::json description = parse_json(text);
  const auto own = tokenizer_file_from(description);
  if (own && own->byte_level && own->vocabulary == ByteTokenizer::vocabulary()) {
    return std::make_unique<ByteTokenizer>();
  }
  if (own && !own->byte_level) {
    return std::make_unique<CharTokenizer>(CharTokenizer::from_characters(own->vocabulary));
  }
  const fs::path config = directory / Tokenizer::kConfigName;
  return read_tokenizer_json(description, std::move(text),
                             fs::exists(config) ? read_text_file(config) : "");
}

}  // namespace

bool Tokenizer::exists(const fs::path& directory) {
  return fs::exists(directory / kFileName) ||
         (fs::exists(directory / "vocab.json") && fs::exists(directory / "merges.txt"));
}

std::unique_ptr<Tokenizer> Tokenizer::load(const fs::path& directory) {
  check(exists(directory),
        "{}: no tokenizer here: neither tokenizer.json nor vocab.json and merges.txt; tessera "
        "prepare writes one with the data, and tessera train copies it next to the model",
        directory.string());
  const fs::path path = directory / kFileName;
  try {
    return fs::exists(path) ? tokenizer_from(directory) : read_gpt2_files(directory);
  } catch (const Error& error) {
    fail("{}: not a tokenizer: {}", (fs::exists(path) ? path : directory).string(), error.what());
  }
}

}  // namespace tessera
