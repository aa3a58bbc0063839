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
  fs::create_directory(folder / "images");
  write_text(folder / "images/a.png", "not a text");
  write_text(folder / "images/.hidden.txt", "nor this");
  CHECK_THROWS_WITH(with({folder / "images"}, "bytes"),
                    Contains("images has no .txt, .md, .json, .jsonl, .yaml or .yml file"));
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

namespace {

/// The tokens of a folder's training set and validation set, as characters.
std::pair<std::string, std::string> texts_in(const fs::path& folder) {
  const auto text = [&](const char* name) {
    std::string all;
    for (const TokenId token : tokens_in(folder / name)) all.push_back(static_cast<char>(token));
    return all;
  };
  return {text("train.bin"), text("val.bin")};
}

/// The text that `prepare` takes from a file of this name.
std::string text_of(const std::string& name, std::string_view contents,
                    std::vector<std::string> keys = {}) {
  const test::TemporaryDirectory folder;
  prepare({.inputs = {write_text(folder / name, contents)},
           .tokenizer = "bytes",
           .out = folder / "out",
           .val_fraction = 0.0,
           .keys = std::move(keys)});
  return texts_in(folder / "out").first;
}

std::string error_of(const std::string& name, std::string_view contents) {
  try {
    text_of(name, contents);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("prepare takes the strings of structured files, under the keys that it is given") {
  const std::string lines = "{\"text\": \"one\", \"url\": \"x\"}\n\n{\"text\": \"two\"}\r\n";
  CHECK(text_of("a.jsonl", lines) == "onetwo");
  CHECK(text_of("a.jsonl", lines, {"url"}) == "x");
  CHECK(text_of("a.jsonl", "{\"q\": \"why\", \"n\": 7, \"a\": [\"so\", {\"b\": \"and\"}]}") ==
        "so\nand\nwhy");  // objects are sorted by key
  CHECK(text_of("a.json", "[{\"text\": \"one\"}, \"two\"]") == "onetwo");
  CHECK(text_of("a.json", "{\"a\": {\"text\": \"deep\"}, \"b\": \"other\"}", {"text"}) == "deep");
  CHECK(text_of("a.yaml", "- text: one\n- text: two\n") == "onetwo");
  CHECK(text_of("a.yml", "title: A\nyear: 1984\nopen: true\ncode: '7'\n---\ntext: next\n") ==
        "7\nAnext");
  CHECK(text_of("a.md", "{\"text\": 1}") == "{\"text\": 1}");
}

TEST_CASE("a damaged structured file is named with its line") {
  CHECK_THAT(error_of("a.jsonl", "{\"text\": \"one\"}\n{\"text\": }\n"), Contains("a.jsonl:2: "));
  CHECK_THAT(error_of("a.json", "[1, "), Contains("a.json"));
  CHECK_THAT(error_of("a.yaml", "a: [1"), Contains("a.yaml") && Contains("line"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "[";
  CHECK_THAT(error_of("a.json", deep), Contains("nested more than 64 levels deep"));
  CHECK_THAT(error_of("a.yaml", deep + std::string(100, ']')),
             Contains("nested more than 64 levels deep"));
}

TEST_CASE("a folder's files are taken in the order of their paths") {
  const test::TemporaryDirectory folder;
  fs::create_directories(folder / "in/b");
  fs::create_directories(folder / "in/.git");
  write_text(folder / "in/c.txt", "3");
  write_text(folder / "in/b/z.md", "2");
  write_text(folder / "in/a.jsonl", "{\"text\": \"1\"}\n");
  write_text(folder / "in/.git/x.txt", "no");
  write_text(folder / "in/picture.png", "no");
  prepare({.inputs = {folder / "in"},
           .tokenizer = "bytes",
           .out = folder / "out",
           .val_fraction = 0.0});
  CHECK(texts_in(folder / "out").first == "123");
}

TEST_CASE("prepare validates on tails, on whole documents, or on other files") {
  const test::TemporaryDirectory folder;
  std::string few, many;
  for (int i = 0; i < 4; ++i) few += "{\"text\": \"abcd\"}\n";
  for (int i = 0; i < 100; ++i)
    many += "{\"text\": \"" + std::string(3, "0123456789"[i % 10]) + "\"}\n";
  const fs::path few_path = write_text(folder / "few.jsonl", few);
  const fs::path many_path = write_text(folder / "many.jsonl", many);
  const auto texts = [&](PrepareOptions options) {
    options.tokenizer = "bytes";
    options.out = folder / "out";
    prepare(options);
    return texts_in(folder / "out");
  };
  CHECK(texts({.inputs = {few_path}, .val_fraction = 0.25}) ==
        std::pair<std::string, std::string>("abcabcabcabc", "dddd"));
  CHECK(texts({.inputs = {few_path}, .val_fraction = 0.25, .split = ValidationSplit::documents}) ==
        std::pair<std::string, std::string>("abcdabcdabcd", "abcd"));
  const auto [train, val] = texts({.inputs = {many_path}, .val_fraction = 0.1});
  CHECK(val == "999999999999999999999999999999");  // document 9, 19, ...
  CHECK(train.size() == 270);
  CHECK(texts({.inputs = {few_path}, .val_inputs = {write_text(folder / "v.txt", "other")}}) ==
        std::pair<std::string, std::string>("abcdabcdabcdabcd", "other"));
}

TEST_CASE("more tokens than a file may have are written to several, and other ones go") {
  const test::TemporaryDirectory folder;
  const fs::path text = write_text(folder / "a.txt", "abcdefghij");
  PrepareOptions options{.inputs = {text},
                         .tokenizer = "bytes",
                         .out = folder / "out",
                         .val_fraction = 0.3,
                         .shard_tokens = 3};
  const Manifest manifest = prepare(options);
  CHECK(manifest.train_tokens == 7);
  CHECK(tokens_in(folder / "out/train_000000.bin") == std::vector<TokenId>{'a', 'b', 'c'});
  CHECK(tokens_in(folder / "out/train_000001.bin") == std::vector<TokenId>{'d', 'e', 'f'});
  CHECK(tokens_in(folder / "out/train_000002.bin") == std::vector<TokenId>{'g'});
  CHECK(tokens_in(folder / "out/val.bin") == std::vector<TokenId>{'h', 'i', 'j'});
  CHECK(read_manifest(folder / "out").outputs.size() == 4);
  options.shard_tokens = 1000;
  prepare(options);
  CHECK(names_in(folder / "out") == kAllFiles);
}

TEST_CASE("a long text is cut into parts without another token") {
  const test::TemporaryDirectory folder;
  // GPT-2 has a token for two line breaks, and other tokens for them before a word. Llama 2 cannot
  // cut anywhere: its texts begin with a space.
  std::string text;
  for (int i = 0; text.size() < 1'300'000; ++i) {
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

TEST_CASE("prepare goes on behind the files that a killed run has completed") {
  const test::TemporaryDirectory folder;
  const std::vector<fs::path> inputs = {write_text(folder / "a.txt", "first"),
                                        write_text(folder / "b.txt", "second"),
                                        write_text(folder / "c.jsonl", "{\"text\": \"third\"}\n{")};
  const PrepareOptions options{
      .inputs = inputs, .tokenizer = "bytes", .out = folder / "out", .val_fraction = 0.0};
  CHECK_THROWS_WITH(prepare(options), Contains("c.jsonl:2: "));
  // Files that are complete are kept for the next run, which must not encode them again.
  std::fstream tokens(folder / "out/.partial/train/tokens",
                      std::ios::binary | std::ios::in | std::ios::out);
  REQUIRE(tokens.is_open());
  tokens.put('F');
  tokens.close();
  write_text(folder / "c.jsonl", "{\"text\": \"third\"}\n");
  prepare(options);
  CHECK(texts_in(folder / "out").first == "Firstsecondthird");
  CHECK(names_in(folder / "out") == kAllFiles);
}

TEST_CASE("prepare encodes a file again that has changed since, and all for other settings") {
  const test::TemporaryDirectory folder;
  const std::vector<fs::path> inputs = {write_text(folder / "a.txt", "first"),
                                        write_text(folder / "b.jsonl", "{")};
  PrepareOptions options{
      .inputs = inputs, .tokenizer = "bytes", .out = folder / "out", .val_fraction = 0.0};
  CHECK_THROWS_WITH(prepare(options), Contains("b.jsonl:1: "));
  write_text(folder / "a.txt", "other");
  write_text(folder / "b.jsonl", "{\"text\": \"x\", \"more\": \"y\"}");
  prepare(options);
  CHECK(texts_in(folder / "out").first == "otherx");
  write_text(folder / "b.jsonl", "{");
  CHECK_THROWS_WITH(prepare(options), Contains("b.jsonl:1: "));
  write_text(folder / "b.jsonl", "{\"text\": \"x\", \"more\": \"y\"}");
  options.keys = {"more"};
  prepare(options);
  CHECK(texts_in(folder / "out").first == "othery");
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
