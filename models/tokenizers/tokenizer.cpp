#include "models/tokenizers/tokenizer.h"

#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "models/tokenizers/tokenizer_file.h"
#include "runtime/check.h"

namespace tessera {

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kFileName;
  const TokenizerFile file = read_tokenizer_file(path);
  try {
    if (file.byte_level) {
      check(file.vocabulary == ByteTokenizer::vocabulary(),
            "its vocabulary is not that of the 256 bytes");
      return std::make_unique<ByteTokenizer>();
    }
    return std::make_unique<CharTokenizer>(CharTokenizer::from_characters(file.vocabulary));
  } catch (const Error& error) {
    fail("{}: not a tokenizer of bytes or characters: {}", path.string(), error.what());
  }
}

}  // namespace tessera
