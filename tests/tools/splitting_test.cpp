#include "tools/data/splitting.h"

#include <catch2/catch.hpp>

#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"
#include "tools/data/prepare.h"

namespace tessera {
namespace {

using test::kAllFiles;
using test::names_in;
using test::texts_in;
using test::tokens_in;
using test::write_text;
namespace fs = std::filesystem;

}  // namespace

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

}  // namespace tessera
