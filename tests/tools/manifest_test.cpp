#include "tools/data/manifest.h"

#include <catch2/catch.hpp>

#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"
#include "tools/data/prepare.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::write_text;
namespace fs = std::filesystem;

}  // namespace

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

}  // namespace tessera
