#include "tools/data/prepare.h"

#include <catch2/catch.hpp>

#include "models/tokenizers/tokenizer.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kAllFiles;
using test::names_in;
using test::tokens_in;
using test::write_text;
namespace fs = std::filesystem;

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

TEST_CASE("prepare reads its inputs in order") {
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
  fs::create_directory(folder / "images");
  write_text(folder / "images/a.png", "not a text");
  write_text(folder / "images/.hidden.txt", "nor this");
  CHECK_THROWS_WITH(with({folder / "images"}, "bytes"),
                    Contains("images has no .txt, .md, .json, .jsonl, .yaml, .yml, .parquet, "));
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

TEST_CASE("a long text is cut into parts without another token") {
  const test::TemporaryDirectory folder;
  // GPT-2 has a token for two line breaks, and other tokens for them before a word. Llama 2 cannot
  // cut anywhere: its texts begin with a space.
  std::string text;
  for (int i = 0; text.size() < 300'000; ++i) {
    text += i % 1000 == 0 ? "word\nother" : "1\n\n2\n \n 3";
  }
  const fs::path text_path = write_text(folder / "a.txt", text);
  for (const char* name : {"tests/golden/tokenizers/llama2", "tests/golden/tokenizers/llama4",
                           "../shared/data/tokenizers/gpt2"}) {
    CAPTURE(name);
    const fs::path from = fs::path(TESSERA_SOURCE_DIR) / name;
    if (!fs::exists(from)) {
      WARN("skipped: there is no " << from);
      continue;
    }
    const Manifest manifest = prepare({.inputs = {text_path},
                                       .tokenizer = from.string(),
                                       .out = folder / "out",
                                       .val_fraction = 0.0,
                                       .end_of_text = "none"});
    const auto expected = Tokenizer::load(from)->encode(text);
    const bool equal = tokens_in(folder / "out/train.bin") ==
                       std::vector<TokenId>(expected.begin(), expected.end());
    CHECK(equal);  // Catch would print millions of tokens
  }
}

TEST_CASE("prepare reports its progress up to the size of the inputs") {
  const test::TemporaryDirectory folder;
  std::int64_t calls = 0, last = 0;
  prepare(
      {.inputs = {write_text(folder / "a.txt", "first"), write_text(folder / "b.txt", "second")},
       .tokenizer = "bytes",
       .out = folder / "out",
       .progress = [&](const PrepareProgress& progress) {
         ++calls;
         CHECK(progress.all_bytes == 11);
         CHECK(progress.bytes > last);
         last = progress.bytes;
       }});
  CHECK(calls == 2);
  CHECK(last == 11);
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
  auto expected = tokenizer->encode("Hello, world! 1234<|end_of_text|>\n");
  expected.push_back(tokenizer->encode("<|end_of_text|>").at(0));
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
