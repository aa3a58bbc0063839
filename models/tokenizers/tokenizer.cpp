#include "models/tokenizers/tokenizer.h"

#include <nlohmann/json.hpp>

#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "runtime/check.h"
#include "runtime/file.h"

namespace tessera {
namespace {

std::unique_ptr<Tokenizer> tokenizer_from(const nlohmann::json& description) {
  const auto type = description.at("type").get<std::string>();
  if (type == "bytes") return std::make_unique<ByteTokenizer>();
  if (type == "chars") {
    return std::make_unique<CharTokenizer>(
        CharTokenizer::from_characters(description.at("characters")));
  }
  fail("unknown type '{}', expected bytes or chars", type);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kFileName;
  const std::string text = read_text_file(path);
  try {
    return tokenizer_from(nlohmann::json::parse(text));
  } catch (const std::exception& error) {
    fail("{}: not a tokenizer: {}", path.string(), error.what());
  }
}

}  // namespace tessera
