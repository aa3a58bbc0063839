#include "models/tokenizers/tokenizer.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "models/tokenizers/byte_spelling.h"
#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "models/tokenizers/utf8.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

std::string every_byte() {
  std::string text(256, '\0');
  std::iota(text.begin(), text.end(), '\0');
  return text;
}

}  // namespace

TEST_CASE("bytes: a token is a byte's value") {
  const ByteTokenizer tokenizer;
  REQUIRE(tokenizer.vocab_size() == 256);
  REQUIRE(tokenizer.encode("Az\n") == Tokens{65, 122, 10});
  REQUIRE(tokenizer.encode("é") == Tokens{0xc3, 0xa9});
  REQUIRE(tokenizer.encode("").empty());
}

TEST_CASE("bytes: every byte survives the way there and back") {
  const ByteTokenizer tokenizer;
  REQUIRE(tokenizer.encode(every_byte()).back() == 255);
  REQUIRE(tokenizer.decode(tokenizer.encode(every_byte())) == every_byte());
}

TEST_CASE("bytes: decoding refuses a token that is not a byte") {
  const ByteTokenizer tokenizer;
  REQUIRE_THROWS_WITH(tokenizer.decode(Tokens{256}), Contains("256") && Contains("vocabulary"));
  REQUIRE_THROWS_AS(tokenizer.decode(Tokens{-1}), Error);
}

TEST_CASE("chars: code points are numbered in ascending order") {
  const CharTokenizer tokenizer = CharTokenizer::from_text("banana é€😀 b");
  // space a b n é(U+E9) €(U+20AC) 😀(U+1F600)
  REQUIRE(tokenizer.vocab_size() == 7);
  REQUIRE(tokenizer.encode(" abné€😀") == Tokens{0, 1, 2, 3, 4, 5, 6});
  REQUIRE(tokenizer.decode(Tokens{2, 1, 3, 1, 3, 1, 0, 6}) == "banana 😀");
}

TEST_CASE("chars: the zero character is a character like others") {
  const std::string text("a\0b", 3);
  const CharTokenizer tokenizer = CharTokenizer::from_text(text);
  REQUIRE(tokenizer.encode(text) == Tokens{1, 0, 2});
  REQUIRE(tokenizer.decode(Tokens{1, 0, 2}) == text);
}

TEST_CASE("chars: an unknown character is named") {
  const CharTokenizer tokenizer = CharTokenizer::from_text("abc");
  REQUIRE_THROWS_WITH(tokenizer.encode("abé"),
                      Contains("'é' (U+00E9)") && Contains("3 characters"));
  REQUIRE_THROWS_WITH(tokenizer.encode("a b"), Contains("' ' (U+0020)"));
  REQUIRE_THROWS_WITH(tokenizer.decode(Tokens{3}), Contains("token 3") && Contains("3 characters"));
}

TEST_CASE("chars: an empty text has an empty vocabulary") {
  REQUIRE(CharTokenizer::from_text("").vocab_size() == 0);
}

TEST_CASE("utf-8: invalid bytes are refused with their position") {
  // Stray continuation, missing continuation, cut short, overlong "/" and NUL, a surrogate, beyond
  // U+10FFFF, bytes that never occur.
  for (const std::string bad :
       {"\x80", "\xc3(", "\xe2\x82", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xff", "\xf8\x88\x80\x80\x80"}) {
    CAPTURE(bad);
    REQUIRE_THROWS_WITH(CharTokenizer::from_text("ab" + bad),
                        Contains("UTF-8 at byte 2") && Contains("bytes tokenizer"));
  }
}

TEST_CASE("utf-8: the first and last code point of every length are read") {
  const auto read = [](const std::string& text) {
    const CodePoint point = code_point_at(text, 0);
    REQUIRE(point.bytes == text.size());
    return static_cast<std::uint32_t>(point.value);
  };
  CHECK(read(std::string(1, '\0')) == 0);
  CHECK(read("\x7f") == 0x7f);
  CHECK(read("\xc2\x80") == 0x80);
  CHECK(read("\xdf\xbf") == 0x7ff);
  CHECK(read("\xe0\xa0\x80") == 0x800);
  CHECK(read("\xed\x9f\xbf") == 0xd7ff);
  CHECK(read("\xee\x80\x80") == 0xe000);
  CHECK(read("\xef\xbf\xbf") == 0xffff);
  CHECK(read("\xf0\x90\x80\x80") == 0x10000);
  CHECK(read("\xf4\x8f\xbf\xbf") == 0x10ffff);
}

TEST_CASE("a saved tokenizer loads as the same tokenizer") {
  const test::TemporaryDirectory folder;
  const std::string text = "\"quoted\" \\ é€😀\n\t" + std::string(1, '\0');
  const CharTokenizer chars = CharTokenizer::from_text(text);
  chars.save(folder.path());
  const auto loaded = Tokenizer::load(folder.path());
  REQUIRE(loaded->vocab_size() == chars.vocab_size());
  REQUIRE(loaded->encode(text) == chars.encode(text));
  REQUIRE(loaded->decode(chars.encode(text)) == text);

  ByteTokenizer().save(folder.path());
  const auto bytes = Tokenizer::load(folder.path());
  REQUIRE(bytes->vocab_size() == 256);
  REQUIRE(bytes->encode(text) == ByteTokenizer().encode(text));
}

TEST_CASE("a tokenizer.json has the parts that Hugging Face's tokenizers reads") {
  const test::TemporaryDirectory folder;
  CharTokenizer::from_characters({"b", "é", "a"}).save(folder.path());
  const json chars = json::parse(read_text_file(folder / "tokenizer.json"));
  REQUIRE(chars.at("model").at("type") == "BPE");
  REQUIRE(chars.at("model").at("vocab") == json{{"b", 0}, {"é", 1}, {"a", 2}});
  REQUIRE(chars.at("model").at("merges") == json::array());
  REQUIRE(chars.at("added_tokens") == json::array());
  REQUIRE(chars.at("pre_tokenizer").is_null());
  REQUIRE(chars.at("decoder") == json{{"type", "Fuse"}});

  ByteTokenizer().save(folder.path());
  const json bytes = json::parse(read_text_file(folder / "tokenizer.json"));
  REQUIRE(bytes.at("pre_tokenizer").at("type") == "ByteLevel");
  REQUIRE(bytes.at("pre_tokenizer").at("use_regex") == false);
  REQUIRE(bytes.at("decoder").at("type") == "ByteLevel");
}

TEST_CASE("bytes are spelled as in GPT-2's vocabulary") {
  // From bytes_to_unicode of the published code: space, newline, DEL, NBSP, soft hyphen, and
  // printable bytes.
  CHECK(spelling_of_byte(' ') == "Ġ");
  CHECK(spelling_of_byte('\n') == "Ċ");
  CHECK(spelling_of_byte(0) == "Ā");
  CHECK(spelling_of_byte(0x7f) == "ġ");
  CHECK(spelling_of_byte(0xa0) == "ł");
  CHECK(spelling_of_byte(0xad) == "Ń");
  CHECK(spelling_of_byte('A') == "A");
  CHECK(spelling_of_byte(0xe9) == "é");
  const std::vector<std::string> all = ByteTokenizer::vocabulary();
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == 256);
}

TEST_CASE("a bad tokenizer file is refused with its path") {
  const test::TemporaryDirectory folder;
  REQUIRE_THROWS_WITH(Tokenizer::load(folder.path()), Contains("tokenizer.json"));
  const auto with_vocabulary = [](const std::string& vocabulary) {
    return R"({"model": {"type": "BPE", "vocab": )" + vocabulary + "}}";
  };
  for (const std::string& bad :
       {std::string(), std::string("not json"), std::string("[]"), std::string("{}"),
        std::string(R"({"type": "chars", "characters": ["a"]})"),
        std::string(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}})"),
        std::string(R"({"model": {"type": "BPE"}})"),
        std::string(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}})"),
        std::string(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "added_tokens": [1]})"),
        std::string(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "pre_tokenizer": "x"})"),
        with_vocabulary(R"(["a"])"), with_vocabulary(R"({"ab": 0})"), with_vocabulary(R"({"": 0})"),
        with_vocabulary(R"({"a": 1})"), with_vocabulary(R"({"a": -1})"),
        with_vocabulary(R"({"a": 0.5})"), with_vocabulary(R"({"a": 0, "b": 0})"),
        with_vocabulary(R"({"a": 0, "a": 1})"), with_vocabulary(std::string(100000, '['))}) {
    CAPTURE(bad.substr(0, 100));
    write_file_atomically(folder / "tokenizer.json", bad);
    REQUIRE_THROWS_WITH(Tokenizer::load(folder.path()), Contains("tokenizer.json: "));
  }
}

}  // namespace tessera
