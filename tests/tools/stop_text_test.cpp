#include "tools/serve/stop_text.h"

#include <catch2/catch.hpp>
#include <random>

#include "models/tokenizers/utf8.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

/// The parts that are handed out for these pieces, and the rest.
Texts handed_out(const Texts& stops, const Texts& pieces) {
  StopText text(stops);
  Texts parts;
  for (const std::string& piece : pieces) parts.push_back(text.push(piece));
  parts.push_back(text.finish());
  return parts;
}

std::string joined(const Texts& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

}  // namespace

TEST_CASE("text ends before the first stop text, however it is cut into pieces") {
  CHECK(handed_out({}, {"a", "b"}) == Texts{"a", "b", ""});
  CHECK(handed_out({""}, {"a", "b"}) == Texts{"a", "b", ""});
  CHECK(handed_out({"END"}, {"aEN", "D", "b"}) == Texts{"a", "", "", ""});
  CHECK(handed_out({"END"}, {"aEN", "x"}) == Texts{"a", "ENx", ""});
  CHECK(handed_out({"END"}, {"aEN"}) == Texts{"a", "EN"});
  CHECK(handed_out({"bc", "ab"}, {"xabc"}) == Texts{"x", ""});
  CHECK(handed_out({"aab"}, {"a", "a", "a", "b"}) == Texts{"", "", "a", "", ""});
}

TEST_CASE("a piece of text never ends inside a character, and invalid bytes are replaced") {
  CHECK(handed_out({}, {"\xc3", "\xa9"}) == Texts{"", "é", ""});
  CHECK(handed_out({}, {"\xf0\x9f", "\x98\x80!"}) == Texts{"", "😀!", ""});
  CHECK(handed_out({}, {"a\xf0\x9f"}) == Texts{"a", "\uFFFD"});
  CHECK(handed_out({}, {"\x80"}) == Texts{"\uFFFD", ""});
  CHECK(handed_out({"é"}, {"a\xc3",
                           "\xa9"
                           "b"}) == Texts{"a", "", ""});
}

TEST_CASE("random bytes in random pieces give the repaired text before the stop text") {
  std::mt19937 random(5);
  const Texts characters = {"a", "b", "é", "日", "😀", "\x80", "\xe6\x97", "\xff"};
  for (int round = 0; round < 2000; ++round) {
    std::string all;
    for (auto i = random() % 12; i > 0; --i) all += characters[random() % characters.size()];
    Texts pieces;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t size = 1 + random() % 4;
      pieces.push_back(all.substr(at, size));
      at += size;
    }
    const std::string stop = characters[random() % 5] + characters[random() % 5];
    const Texts parts = handed_out({stop}, pieces);
    CAPTURE(round, stop, all);
    CHECK(joined(parts) == repaired_utf8(std::string_view(all).substr(0, all.find(stop))));
    for (const std::string& part : parts) CHECK(is_valid_utf8(part));
  }
}

}  // namespace tessera
