#include "tools/data/token_spool.h"

#include <catch2/catch.hpp>
#include <tuple>

#include "runtime/error.h"
#include "runtime/file.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"
#include "tools/data/prepare.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kAllFiles;
using test::names_in;
using test::texts_in;
using test::tokens_in;
using test::write_text;
namespace fs = std::filesystem;

}  // namespace

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

TEST_CASE("a damaged spool is refused in one line, and all files are encoded again") {
  const test::TemporaryDirectory folder;
  const PrepareOptions options{
      .inputs = {write_text(folder / "a.txt", "first"), write_text(folder / "b.jsonl", "{")},
      .tokenizer = "bytes",
      .out = folder / "out",
      .val_fraction = 0.0};
  const fs::path spool = folder / "out/.partial/train";
  /// Leaves the spool of a program that was killed in its second file.
  const auto begin = [&] {
    write_text(folder / "b.jsonl", "{");
    CHECK_THROWS_WITH(prepare(options), Contains("b.jsonl:1: "));
    write_text(folder / "b.jsonl", "{}");
  };
  const std::tuple<const char*, const char*, const char*> kBad[] = {
      {"\"tokens\":5", "\"tokens\":6", "tokens is 6; expected a whole number from 0 to 5"},
      {"\"documents\":1", "\"documents\":2", "documents is 2; expected a whole number from 0 to 1"},
      {"\"bytes\":5", "\"bytes\":null", "bytes is of type null; expected"},
      {"\"path\":\"", "\"path\":7,\"x\":\"", "path is 7; expected text"},
      {"\"fnv1a_64\":\"", "\"fnv1a_64\":\"x", "fnv1a_64 is \"x"},
      {"\"bytes\"", "\"byte\"", "bytes is missing"}};
  for (const auto& [from, to, message] : kBad) {
    CAPTURE(to);
    begin();
    std::string text = read_text_file(spool / "done.jsonl");
    const std::size_t found = text.find(from);
    REQUIRE(found != text.npos);
    write_text(spool / "done.jsonl", text.replace(found, std::string(from).size(), to));
    CHECK_THROWS_WITH(prepare(options),
                      Catch::StartsWith((spool / "done.jsonl").string() + ":2: ") &&
                          Contains(message) && Contains("; run the command again"));
  }
  begin();
  write_text(spool / "ends", "\x09" + std::string(7, '\0'));
  CHECK_THROWS_WITH(prepare(options), Catch::StartsWith((spool / "ends").string() +
                                                        ": the file is damaged: a document "
                                                        "from token 0 to 9 of 5"));
  CHECK_NOTHROW(prepare(options));
  CHECK(texts_in(folder / "out").first == "first");
}

}  // namespace tessera
