#include "tools/data/prepare.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "models/tokenizers/tokenizer.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "tests/support/temporary_directory.h"
#include "tools/data/token_file.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

fs::path write_text(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<TokenId> tokens_in(const fs::path& path) {
  const TokenFile file(path);
  std::vector<TokenId> tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

const std::set<std::string> kAllFiles = {"train.bin", "val.bin", "tokenizer.json",
                                         "tokenizer_config.json", "manifest.json"};

}  // namespace

TEST_CASE("prepare tokenizes by bytes and splits the end off") {
  const test::TemporaryDirectory folder;
  const fs::path text = write_text(folder / "a.txt", "abcdefghij");
  prepare({.inputs = {text}, .tokenizer = "bytes", .out = folder / "out", .val_fraction = 0.25});
  REQUIRE(tokens_in(folder / "out/train.bin") ==
          std::vector<TokenId>{97, 98, 99, 100, 101, 102, 103});  // 7 = floor(10 * 0.75)
  REQUIRE(tokens_in(folder / "out/val.bin") == std::vector<TokenId>{104, 105, 106});
  REQUIRE(names_in(folder / "out") == kAllFiles);
}

TEST_CASE("prepare tokenizes by characters of the whole text") {
  const test::TemporaryDirectory folder;
  const fs::path text = write_text(folder / "a.txt", "bébé ab€");
  prepare({.inputs = {text}, .tokenizer = "chars", .out = folder / "out", .val_fraction = 0.25});
  // space a b é €
  REQUIRE(tokens_in(folder / "out/train.bin") == std::vector<TokenId>{2, 3, 2, 3, 0, 1});
  REQUIRE(tokens_in(folder / "out/val.bin") == std::vector<TokenId>{2, 4});
  const auto tokenizer = Tokenizer::load(folder / "out");
  REQUIRE(tokenizer->decode(std::vector<std::int32_t>{2, 4}) == "b€");
}

TEST_CASE("prepare reads its inputs in order as one text") {
  const test::TemporaryDirectory folder;
  const fs::path first = write_text(folder / "z.txt", "xy");
  const fs::path second = write_text(folder / "a.txt", "ab");
  const fs::path none = write_text(folder / "empty.txt", "");
  prepare({.inputs = {first, none, second},
           .tokenizer = "bytes",
           .out = folder / "out",
           .val_fraction = 0.0});
  REQUIRE(tokens_in(folder / "out/train.bin") == std::vector<TokenId>{'x', 'y', 'a', 'b'});
  REQUIRE(tokens_in(folder / "out/val.bin").empty());
}

TEST_CASE("the manifest lists the files that were read and written") {
  const test::TemporaryDirectory folder;
  const fs::path text = write_text(folder / "a.txt", "foobar");
  const Manifest made =
      prepare({.inputs = {text}, .tokenizer = "chars", .out = folder / "out", .val_fraction = 0.5});
  for (const Manifest& manifest : {made, read_manifest(folder / "out")}) {
    REQUIRE(manifest.tokenizer == "chars");
    REQUIRE(manifest.vocab_size == 5);
    REQUIRE(manifest.train_tokens == 3);
    REQUIRE(manifest.val_tokens == 3);
    REQUIRE(manifest.inputs.size() == 1);
    REQUIRE(manifest.inputs[0].path == text.string());
    REQUIRE(manifest.inputs[0].bytes == 6);
    REQUIRE(manifest.inputs[0].checksum == 0x85944171f73967e8u);
    REQUIRE(manifest.outputs.size() == 2);
    REQUIRE(manifest.outputs[1].path == "val.bin");
    REQUIRE(manifest.outputs[1].bytes == 1024 + 6);
    const std::string bytes = read_text_file(folder / "out/val.bin");
    Fnv1a hash;
    hash.add(bytes);
    REQUIRE(manifest.outputs[1].checksum == hash.value());
  }
}

TEST_CASE("prepare again replaces what was there and clears a killed run's leftovers") {
  const test::TemporaryDirectory folder;
  const fs::path text = write_text(folder / "a.txt", "first text");
  const PrepareOptions options{.inputs = {text}, .tokenizer = "bytes", .out = folder / "out"};
  prepare(options);
  fs::create_directories(folder / "out/.partial");
  write_text(folder / "out/.partial/train.bin", "half");
  write_text(folder / "a.txt", "second");
  prepare(options);
  REQUIRE(tokens_in(folder / "out/train.bin") == std::vector<TokenId>{'s', 'e', 'c', 'o', 'n'});
  REQUIRE(names_in(folder / "out") == kAllFiles);
}

TEST_CASE("bad input is refused before anything is written") {
  const test::TemporaryDirectory folder;
  const auto with = [&](std::vector<fs::path> inputs, const std::string& tokenizer,
                        double val_fraction = 0.1) {
    prepare({.inputs = std::move(inputs),
             .tokenizer = tokenizer,
             .out = folder / "out",
             .val_fraction = val_fraction});
  };
  const fs::path good = write_text(folder / "good.txt", "good");
  const fs::path empty = write_text(folder / "empty.txt", "");
  const fs::path latin1 = write_text(folder / "latin1.txt", "caf\xe9 au lait");
  CHECK_THROWS_WITH(with({}, "bytes"), Contains("at least one input"));
  CHECK_THROWS_WITH(with({empty}, "bytes"), Contains("input is empty: ") && Contains("empty.txt"));
  CHECK_THROWS_WITH(with({folder / "none.txt"}, "bytes"), Contains("none.txt"));
  CHECK_THROWS_WITH(with({folder.path()}, "bytes"),
                    Contains(folder.path().string() + " is a folder; name its files: --input "));
  CHECK_THROWS_WITH(with({folder / "*.txt"}, "bytes"),
                    Contains("there is no file named ") && Contains("without quotes"));
  CHECK_THROWS_WITH(with({good}, "words"), Contains("unknown tokenizer 'words'"));
  CHECK_THROWS_WITH(
      with({good, latin1}, "chars"),
      Contains("latin1.txt: not valid UTF-8 at byte 3 (0xe9)") && Contains("--tokenizer bytes"));
  CHECK_THROWS_WITH(with({good}, "bytes", 1.0), Contains("validation fraction"));
  CHECK_THROWS_WITH(with({good}, "bytes", -0.1), Contains("validation fraction"));
  CHECK_THROWS_WITH(with({good}, "bytes", 0.9), Contains("no token is left to train on"));
  REQUIRE_FALSE(fs::exists(folder / "out"));
  REQUIRE_NOTHROW(with({latin1}, "bytes"));
}

TEST_CASE("a text with more than 65536 characters has tokens of 32 bits") {
  const test::TemporaryDirectory folder;
  std::string text;
  for (std::uint32_t code = 0x10000; code < 0x10000 + 65537; ++code) {
    for (const std::uint32_t byte : {0xf0 | code >> 18, 0x80 | (code >> 12 & 0x3f),
                                     0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f)}) {
      text.push_back(static_cast<char>(byte));
    }
  }
  const auto run = [&](std::string_view part) {
    return prepare({.inputs = {write_text(folder / "a.txt", part)},
                    .tokenizer = "chars",
                    .out = folder / "out",
                    .val_fraction = 0.0});
  };
  REQUIRE(run(text).vocab_size == 65537);
  REQUIRE(tokens_in(folder / "out/train.bin").back() == 65536);
  REQUIRE(fs::file_size(folder / "out/train.bin") == 1024 + 4 * 65537);
  REQUIRE(read_manifest(folder / "out").train_tokens == 65537);
  REQUIRE_NOTHROW(open_verified(folder / "out/train.bin", 65537));
  REQUIRE(run(std::string_view(text).substr(4)).vocab_size == 65536);
  REQUIRE(fs::file_size(folder / "out/train.bin") == 1024 + 2 * 65536);
}

TEST_CASE("prepare takes the tokenizer of a Hugging Face folder") {
  const test::TemporaryDirectory folder;
  const fs::path from = TESSERA_SOURCE_DIR "/tests/golden/tokenizers/llama4";
  const fs::path text = write_text(folder / "a.txt", "Hello, world! 1234<|end_of_text|>\n");
  const Manifest manifest = prepare(
      {.inputs = {text}, .tokenizer = from.string(), .out = folder / "out", .val_fraction = 0.0});
  const auto tokenizer = Tokenizer::load(from);
  REQUIRE(manifest.vocab_size == 1002);
  REQUIRE(manifest.tokenizer == from.string());
  const auto expected = tokenizer->encode("Hello, world! 1234<|end_of_text|>\n");
  REQUIRE(tokens_in(folder / "out/train.bin") ==
          std::vector<TokenId>(expected.begin(), expected.end()));
  REQUIRE(names_in(folder / "out") == kAllFiles);
  REQUIRE(read_text_file(folder / "out/tokenizer.json") == read_text_file(from / "tokenizer.json"));
  write_text(folder / "latin1.txt", "na\xefve");
  REQUIRE_THROWS_WITH(
      prepare(
          {.inputs = {folder / "latin1.txt"}, .tokenizer = from.string(), .out = folder / "out"}),
      Contains("latin1.txt: not valid UTF-8 at byte 2"));
  REQUIRE_THROWS_WITH(
      prepare({.inputs = {text}, .tokenizer = folder.path().string(), .out = folder / "out"}),
      Contains("no tokenizer here"));
}

TEST_CASE("an output folder that cannot be written is refused and its files kept") {
  const test::TemporaryDirectory folder;
  const fs::path text = write_text(folder / "a.txt", "some text");
  REQUIRE_THROWS_WITH(prepare({.inputs = {text}, .tokenizer = "bytes", .out = text}),
                      Contains("a.txt"));
  REQUIRE(read_text_file(text) == "some text");
}

TEST_CASE("a file that cannot be replaced leaves no manifest that claims otherwise") {
  const test::TemporaryDirectory folder;
  const PrepareOptions options{.inputs = {write_text(folder / "a.txt", "some text")},
                               .tokenizer = "bytes",
                               .out = folder / "out"};
  prepare(options);
  fs::remove(folder / "out/val.bin");
  fs::create_directories(folder / "out/val.bin/in the way");
  REQUIRE_THROWS_WITH(prepare(options), Contains("val.bin"));
  REQUIRE(names_in(folder / "out") ==
          std::set<std::string>{"train.bin", "val.bin", "tokenizer.json", "tokenizer_config.json"});
}

TEST_CASE("a bad manifest is refused with its path and the entry") {
  const test::TemporaryDirectory folder;
  prepare({.inputs = {write_text(folder / "a.txt", "abcabcabcd")},
           .tokenizer = "chars",
           .out = folder / "out"});
  const fs::path path = folder / "out/manifest.json";
  const std::string good = read_text_file(path);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const std::size_t found = text.find(from);
    REQUIRE(found != text.npos);
    write_file_atomically(path, text.replace(found, from.size(), to));
    return read_manifest(folder / "out");
  };
  REQUIRE_NOTHROW(with("", ""));
  REQUIRE_THROWS_WITH(read_manifest(folder.path()), Contains("manifest.json"));
  const std::string prefix = path.string() + ": not a manifest of prepared data: ";
  const std::pair<const char*, const char*> kBad[] = {
      {"31.9", "vocab_size is 31.9; expected a whole number from 1 to 2147483647"},
      {"0", "vocab_size is 0; expected"},
      {"-4", "vocab_size is -4; expected"},
      {"2147483648", "vocab_size is 2147483648; expected"},
      {"18446744073709551615", "vocab_size is 18446744073709551615; expected"},
      {"\"many\"", "vocab_size is \"many\"; expected"},
      {"[[[[[[[[4]]]]]]]]", "vocab_size is of type array; expected"}};
  for (const auto& [value, message] : kBad) {
    CAPTURE(value);
    CHECK_THROWS_WITH(with("\"vocab_size\": 4", std::string("\"vocab_size\": ") + value),
                      Catch::StartsWith(prefix) && Contains(message));
  }
  CHECK_THROWS_WITH(with("\"train_tokens\": 9", "\"train_tokens\": 7"),
                    Contains("train.bin has 1042 bytes; 7 tokens take 1038"));
  CHECK_THROWS_WITH(with("\"tokenizer\"", "\"tokeniser\""), Contains("tokenizer is missing"));
  CHECK_THROWS_WITH(with("\"chars\"", "7"), Contains("tokenizer is 7; expected text"));
  CHECK_THROWS_WITH(with("\"val.bin\"", "\"test.bin\""), Contains("outputs does not list val.bin"));
  CHECK_THROWS_WITH(with("\"fnv1a_64\": \"", "\"fnv1a_64\": \"x"), Contains("fnv1a_64 is \"x"));
  for (const char* bad : {"", "[]", "{}", "{\"inputs\": [1, 2]"}) {
    CAPTURE(bad);
    write_file_atomically(path, bad);
    CHECK_THROWS_WITH(read_manifest(folder / "out"), Catch::StartsWith(prefix));
  }
}

TEST_CASE("a token file that differs from its manifest is refused") {
  const test::TemporaryDirectory folder;
  const fs::path out = folder / "out";
  prepare({.inputs = {write_text(folder / "a.txt", std::string(1000, 'a') + "bcd")},
           .tokenizer = "chars",
           .out = out});
  REQUIRE(open_verified(out / "train.bin", 4).size() == 902);
  const std::string good = read_text_file(out / "train.bin");

  std::string flipped = good;
  flipped[1024 + 300] ^= 1;  // token 150 becomes 1, which the vocabulary has
  write_file_atomically(out / "train.bin", flipped);
  REQUIRE_THROWS_WITH(open_verified(out / "train.bin", 4),
                      Contains("train.bin: the file is damaged: its checksum is "));
  REQUIRE_NOTHROW(open_verified(out / "val.bin", 4));

  write_token_file(out / "train.bin", std::vector<TokenId>(7, 1));
  REQUIRE_THROWS_WITH(open_verified(out / "train.bin", 4),
                      Contains("train.bin has 1038 bytes; ") && Contains(" lists 2828"));
  REQUIRE_THROWS_WITH(open_verified(out / "val.bin", 3), Contains("vocabulary mismatch"));

  write_token_file(out / "other.bin", std::vector<TokenId>(7, 1));
  REQUIRE_NOTHROW(open_verified(out / "other.bin", 4));  // the manifest does not list it
}

// Counts and ids as nanoGPT's data/shakespeare_char/prepare.py prints them.
TEST_CASE("tinyshakespeare by characters is nanoGPT's dataset") {
  const fs::path text = TESSERA_SOURCE_DIR "/../shared/data/tinyshakespeare.txt";
  if (!fs::exists(text)) {
    WARN("skipped: there is no " << text);
    return;
  }
  const test::TemporaryDirectory folder;
  const Manifest manifest =
      prepare({.inputs = {text}, .tokenizer = "chars", .out = folder / "out"});
  REQUIRE(manifest.vocab_size == 65);
  REQUIRE(manifest.train_tokens == 1003854);
  REQUIRE(manifest.val_tokens == 111540);
  const auto tokenizer = Tokenizer::load(folder / "out");
  // From Karpathy's lecture "Let's build GPT".
  REQUIRE(tokenizer->encode("hii there") ==
          std::vector<std::int32_t>{46, 47, 47, 1, 58, 46, 43, 56, 43});
  REQUIRE(tokens_in(folder / "out/train.bin").at(0) == 18);
  REQUIRE_NOTHROW(TokenFile(folder / "out/val.bin").verify(65));
}

}  // namespace tessera
