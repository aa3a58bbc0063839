#include "tools/generate/text_stream.h"

#include <catch2/catch.hpp>

#include "models/tokenizers/bytes.h"
#include "tests/support/paths.h"

namespace tessera {
namespace {

using Tokens = std::vector<std::int32_t>;

/// The text of a prompt's tokens and of those pushed one by one; parts that were handed out.
std::vector<std::string> streamed(const Tokenizer& tokenizer, Tokens prompt, const Tokens& tokens) {
  TextStream stream(tokenizer, std::move(prompt));
  std::vector<std::string> parts;
  for (const std::int32_t token : tokens) parts.push_back(stream.push(token));
  parts.push_back(stream.finish());
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

}  // namespace

TEST_CASE("streamed text is the text of all tokens") {
  for (const char* name : {"llama2", "llama2_metaspace", "llama4"}) {
    const auto tokenizer =
        Tokenizer::load(std::string(TESSERA_SOURCE_DIR "/tests/golden/tokenizers/") + name);
    const std::string text = "The fox 😀 jumps 日本 \U0001F468\u200D\U0001F469 over  it";
    const Tokens tokens = tokenizer->encode(text);
    for (const std::size_t split : {std::size_t{0}, std::size_t{3}, tokens.size()}) {
      CAPTURE(name, split);
      const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(split);
      const Tokens prompt(tokens.begin(), middle), rest(middle, tokens.end());
      const auto parts = streamed(*tokenizer, prompt, rest);
      CHECK(tokenizer->decode(prompt) + joined(parts) == text);
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        CHECK(parts[i].find("\uFFFD") == std::string::npos);
      }
    }
  }
}

TEST_CASE("an incomplete character is handed out at the end") {
  const auto tokenizer = Tokenizer::load(TESSERA_SOURCE_DIR "/tests/golden/tokenizers/llama4");
  Tokens half = tokenizer->encode("😀");
  half.pop_back();
  const auto parts = streamed(*tokenizer, tokenizer->encode("a"), half);
  CHECK(parts.front().empty());
  CHECK(parts.back() == "\uFFFD");
}

TEST_CASE("bytes are handed out at once") {
  CHECK(streamed(ByteTokenizer(), {65}, {0xc3, 0xa9}) ==
        std::vector<std::string>{"\xc3", "\xa9", ""});
}

}  // namespace tessera
