#include "models/tokenizers/bpe.h"

#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "models/tokenizers/bpe_merge.h"
#include "models/tokenizers/regex.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/tokenizer_json.h"
#include "models/tokenizers/utf8.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "runtime/random.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

/// Merges as the definition says, one at a time over the list.
Tokens merged_slowly(const MergeTable& merges, Tokens symbols) {
  while (true) {
    const MergeTable::Merge* best = nullptr;
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto* merge = merges.find(symbols[i], symbols[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        place = i;
      }
    }
    if (best == nullptr) return symbols;
    symbols[place] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

/// A tokenizer.json of three letters and a merge, as a starting point for changes.
json small_file() {
  return {{"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "?"},
            {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}},
            {"merges", {"a b"}}}}};
}

std::unique_ptr<BpeTokenizer> made_with(const std::function<void(json&)>& change) {
  json file = small_file();
  change(file);
  const std::string text = file.dump();
  return read_tokenizer_json(parse_json(text), text);
}

json added(int id, const std::string& text) {
  return {{"id", id}, {"content", text}};
}

json split_at(const std::string& pattern, const std::string& behavior, bool invert = false) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

}  // namespace

TEST_CASE("short and long pieces are merged by rank, then from the left") {
  // Eight letters; random pairs of tokens merge into new ones.
  const RandomStream random(7, "merges");
  MergeTable merges(300);
  std::uint64_t drawn = 0;
  for (std::int32_t rank = 0; rank < 300; ++rank) {
    const auto known = static_cast<std::uint64_t>(8 + rank);
    const auto left =
        static_cast<std::int32_t>(random.below(drawn++, std::min<std::uint64_t>(known, 40)));
    const auto right =
        static_cast<std::int32_t>(random.below(drawn++, std::min<std::uint64_t>(known, 40)));
    merges.insert(left, right, {rank, 8 + rank});
  }
  for (const std::size_t length : {0u, 1u, 2u, 3u, 31u, 32u, 33u, 34u, 100u, 1000u}) {
    Tokens symbols;
    for (std::size_t i = 0; i < length; ++i) {
      symbols.push_back(static_cast<std::int32_t>(random.below(drawn++, 8)));
    }
    const Tokens expected = merged_slowly(merges, symbols);
    merge_symbols(merges, symbols);
    CAPTURE(length);
    REQUIRE(symbols == expected);
    if (length >= 100) REQUIRE(symbols.size() < length);
  }
}

TEST_CASE("a piece of a million equal letters is merged in seconds") {
  const auto tokenizer = made_with([](json& file) {
    file["model"]["vocab"] = {{"?", 0}, {"a", 1}, {"aa", 2}, {"aaaa", 3}};
    file["model"]["merges"] = {"a a", "aa aa"};
  });
  REQUIRE(tokenizer->encode(std::string(1'000'001, 'a')).size() == 250'001);
}

TEST_CASE("unknown characters become the unknown token, each or together") {
  REQUIRE(made_with([](json&) {})->encode("axyb") == Tokens{1, 0, 0, 2});
  const auto fused = made_with([](json& file) { file["model"]["fuse_unk"] = true; });
  REQUIRE(fused->encode("axyb") == Tokens{1, 0, 2});
  const auto dropped = made_with([](json& file) { file["model"]["unk_token"] = nullptr; });
  REQUIRE(dropped->encode("axyb") == Tokens{3});
}

TEST_CASE("split behaviours are those of Hugging Face's documentation") {
  // the-final--countdown, from the documentation of SplitDelimiterBehavior.
  const auto pieces = [](const std::string& behavior, bool invert = false) {
    const auto tokenizer = made_with([&](json& file) {
      json vocabulary = {{"-", 0}};
      for (const char* piece :
           {"the", "final", "countdown", "the-", "final-", "-final", "-countdown", "--"}) {
        vocabulary[piece] = vocabulary.size();
      }
      file["model"] = {{"type", "BPE"},
                       {"ignore_merges", true},
                       {"vocab", vocabulary},
                       {"merges", json::array()},
                       {"unk_token", "-"}};
      file["pre_tokenizer"] = split_at("-", behavior, invert);
      file["decoder"] = nullptr;
    });
    return tokenizer->decode(tokenizer->encode("the-final--countdown"));
  };
  CHECK(pieces("Removed") == "the final countdown");
  CHECK(pieces("Isolated") == "the - final - - countdown");
  CHECK(pieces("MergedWithPrevious") == "the- final- - countdown");
  CHECK(pieces("MergedWithNext") == "the -final - -countdown");
  CHECK(pieces("Contiguous") == "the - final -- countdown");
  CHECK(pieces("Removed", true) == "- - -");
}

TEST_CASE("a long text has the ids of its parts, which threads encode") {
  const auto tokenizer = Tokenizer::load(TESSERA_SOURCE_DIR "/tests/golden/tokenizers/llama4");
  // The pieces of a long number begin at every third digit, which a thread that begins inside
  // cannot know. There is a piece's end between one block and the next.
  std::string block = "fox";
  for (int i = 0; i < 100'004; ++i) block += static_cast<char>('0' + i % 7);
  block += std::string(301, ' ') + "jumps  \n\n\n\t over日本" + std::string(500, 'q') + "!";
  const Tokens of_block = tokenizer->encode(block);
  std::string text;
  Tokens expected;
  for (int i = 0; i < 11; ++i) {
    text += block + "\n";
    expected.insert(expected.end(), of_block.begin(), of_block.end() - 1);
    const Tokens end = tokenizer->encode("!\n");
    expected.insert(expected.end(), end.begin(), end.end());
  }
  REQUIRE(text.size() > 1 << 20);  // the second part begins inside a number
  RankContext rank({.threads = 3});
  const ContextGuard guard(rank);
  REQUIRE((tokenizer->encode(text) == expected));  // too long to print
}

TEST_CASE("text that is not UTF-8 is repaired as Python repairs it") {
  // From bytes.decode("utf-8", errors="replace").
  CHECK(repaired_utf8("a\xff"
                      "b") ==
        "a\uFFFD"
        "b");
  CHECK(repaired_utf8("\xe2\x82") == "\uFFFD");
  CHECK(repaired_utf8("\xf0\x9f\x98x\x80\x80") == "\uFFFDx\uFFFD\uFFFD");
  CHECK(repaired_utf8("\xc0\xaf\xed\xa0\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(repaired_utf8("é€😀") == "é€😀");
  const auto tokenizer = Tokenizer::load(TESSERA_SOURCE_DIR "/tests/golden/tokenizers/llama4");
  CHECK(tokenizer->encode("a\xff"
                          "b") == tokenizer->encode("a\uFFFD"
                                                    "b"));
}

TEST_CASE("tokens that are no UTF-8 on their own decode to U+FFFD") {
  const auto tokenizer = Tokenizer::load(TESSERA_SOURCE_DIR "/tests/golden/tokenizers/llama4");
  Tokens half = tokenizer->encode("😀");
  REQUIRE(tokenizer->decode(half) == "😀");
  half.pop_back();
  CHECK(tokenizer->decode(half) == "\uFFFD");
  CHECK_THROWS_WITH(tokenizer->decode(Tokens{100'000}), Contains("token 100000"));
  CHECK_THROWS_WITH(tokenizer->decode(Tokens{-1}), Contains("token -1"));
}

TEST_CASE("an expression that backtracks without end is an error") {
  const auto tokenizer =
      made_with([](json& file) { file["pre_tokenizer"] = split_at("(a*)*c|(a+)+$", "Isolated"); });
  REQUIRE_THROWS_WITH(tokenizer->encode(std::string(60, 'a') + "b"),
                      Contains("(a*)*c") && Contains("match limit exceeded"));
  REQUIRE_THROWS_WITH(Regex("[a"), Contains("[a") && Contains("not valid"));
  REQUIRE_THROWS_WITH(Regex(std::string(20'000, 'a')), Contains("20000 bytes"));
  REQUIRE_THROWS_WITH(Regex("a\\Kb"), Contains("\\K"));
  REQUIRE_THROWS(Regex("\\C"));
}

TEST_CASE("the class s of a regular expression is Unicode's white space") {
  const auto is_space = [](const char* text) {
    return Regex::Search(Regex("\\s"), text).next(0).has_value();
  };
  for (const char* space : {" ", "\t", "\u0085", "\u00a0", "\u1680", "\u2028", "\u3000"}) {
    CHECK(is_space(space));
  }
  for (const char* other : {"a", "\u180e", "\u200b", "\ufeff"}) CHECK_FALSE(is_space(other));
}

TEST_CASE("a tokenizer.json that is wrong is refused in one line") {
  const auto check_refused = [](const std::string& message,
                                const std::function<void(json&)>& change) {
    CAPTURE(message);
    CHECK_THROWS_WITH(made_with(change), Contains(message) && !Contains("\n"));
  };
  check_refused("merge 1 (\"a\" \"c\") needs the token \"c\"",
                [](json& file) { file["model"]["merges"].push_back("a c"); });
  check_refused("needs the token \"ba\"", [](json& file) {
    file["model"]["merges"].push_back({"b", "a"});
  });
  check_refused("not two tokens", [](json& file) { file["model"]["merges"].push_back("a b b"); });
  check_refused("not two tokens", [](json& file) { file["model"]["merges"].push_back(7); });
  check_refused("have the id 1", [](json& file) { file["model"]["vocab"]["b"] = 1; });
  check_refused("id 2000000000", [](json& file) { file["model"]["vocab"]["b"] = 2'000'000'000; });
  check_refused("31 bits", [](json& file) { file["model"]["vocab"]["b"] = -1; });
  check_refused("31 bits", [](json& file) { file["model"]["vocab"]["b"] = "2"; });
  check_refused("vocabulary lacks the token of unknown",
                [](json& file) { file["model"]["unk_token"] = "c"; });
  check_refused("\"WordPiece\"", [](json& file) { file["model"]["type"] = "WordPiece"; });
  check_refused("dropout", [](json& file) { file["model"]["dropout"] = 0.1; });
  check_refused("end_of_word_suffix",
                [](json& file) { file["model"]["end_of_word_suffix"] = "</w>"; });
  check_refused("'fuse_unk' is \"yes\"", [](json& file) { file["model"]["fuse_unk"] = "yes"; });
  check_refused("has the id 9; expected 4",
                [](json& file) { file["added_tokens"] = {added(9, "<x>")}; });
  check_refused("\"a\" has the id 4; expected 1",
                [](json& file) { file["added_tokens"] = {added(4, "a")}; });
  check_refused("is empty", [](json& file) { file["added_tokens"] = {added(4, "")}; });
  check_refused("normalizer \"BertNormalizer\"", [](json& file) {
    file["normalizer"] = {{"type", "BertNormalizer"}};
  });
  check_refused("pre-tokenizer \"Whitespace\"", [](json& file) {
    file["pre_tokenizer"] = {{"type", "Whitespace"}};
  });
  check_refused("decoder \"CTC\"", [](json& file) { file["decoder"] = {{"type", "CTC"}}; });
  check_refused("post-processor \"BertProcessing\"", [](json& file) {
    file["post_processor"] = {{"type", "BertProcessing"}};
  });
  check_refused("unknown behavior \"Kept\"",
                [](json& file) { file["pre_tokenizer"] = split_at("a", "Kept"); });
  check_refused("not valid", [](json& file) { file["pre_tokenizer"] = split_at("(a", "Removed"); });
  check_refused("not described", [](json& file) {
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}},
                              {"special_tokens", json::object()}};
  });
}

TEST_CASE("merges.txt that is wrong is refused with its folder") {
  const test::TemporaryDirectory folder;
  write_file_atomically(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  write_file_atomically(folder / "merges.txt", "#version: 0.2\r\na b\r\n");
  REQUIRE(Tokenizer::load(folder.path())->encode("abba") == Tokens{2, 1, 0});
  for (const char* bad : {"a", "a b ab", "a c", "\xff a"}) {
    CAPTURE(bad);
    write_file_atomically(folder / "merges.txt", bad);
    REQUIRE_THROWS_WITH(Tokenizer::load(folder.path()), Contains(folder.path().string()));
  }
}

}  // namespace tessera
