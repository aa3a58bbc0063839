// Fuzz target: a tokenizer.json, and encoding and decoding with it.
#include "models/tokenizers/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/json.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

/// Letters, digits, spaces, accents, line ends, an emoji, and bytes that are not UTF-8.
constexpr std::string_view kText =
    "Hello  w\xc3\xb6rld's 1234\r\n\t \xf0\x9f\x98\x80 <s>ab\xff\xc3";

void use(const BpeTokenizer& tokenizer) {
  reads([&] {
    for (const bool plain : {false, true}) {
      const auto tokens = plain ? tokenizer.encode_plain(kText) : tokenizer.encode(kText);
      for (const std::int32_t token : tokens) {
        require(token >= 0 && token < tokenizer.vocab_size(), "tokens are in the vocabulary");
      }
      tokenizer.decode(tokenizer.with_special_tokens(tokens));
    }
  });
}

}  // namespace

bool accepts(std::string_view input) {
  enter_context();
  return reads([&] {
    const nlohmann::json description = parse_json(input);
    const auto tokenizer = read_tokenizer_json(description, std::string(input));
    use(*tokenizer);
  });
}

}  // namespace tessera::fuzz
