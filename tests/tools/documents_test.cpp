#include "tools/data/documents.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "runtime/error.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"
#include "tools/data/prepare.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::texts_in;
using test::write_text;
namespace fs = std::filesystem;

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
  return test::error_of([&] { text_of(name, contents); });
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

TEST_CASE("prepare refuses samples for fine-tuning as documents, and says both ways on") {
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "why"}, {"role": "assistant", "content": "so"}]})";
  const std::string pair = R"({"prompt": "why", "completion": "so"})";
  CHECK_THAT(error_of("a.jsonl", "{\"text\": \"one\"}\n" + chat),
             Contains("a.jsonl:2: a sample for fine-tuning (messages)") &&
                 Contains("add --answers-only") && Contains("--keys content"));
  CHECK_THAT(error_of("a.jsonl", pair), Contains("a.jsonl:1: ") && Contains("--keys completion"));
  CHECK_THAT(error_of("a.json", "[" + chat + "]"), Contains("a.json: a sample"));
  CHECK_THAT(error_of("a.yaml", "prompt: why\ncompletion: so\n"), Contains("a.yaml: a sample"));
  CHECK(text_of("a.jsonl", chat, {"content"}) == "why\nso");
  CHECK(text_of("a.jsonl", pair, {"completion"}) == "so");
  // Documents that only share a name with samples, and those that have their text.
  CHECK(text_of("a.jsonl", R"({"messages": ["one", "two"]})") == "one\ntwo");
  CHECK(text_of("a.jsonl", R"({"prompt": "why"})") == "why");
  CHECK(text_of("a.jsonl", R"({"prompt": "why", "completion": "so", "text": "all"})") == "all");
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

TEST_CASE("damaged YAML whose documents never end is refused") {
  for (const char* const text : {", x\n", "# a comment\n, a: 1\nb: 2\n"}) {
    CAPTURE(text);
    CHECK_THAT(error_of("a.yaml", text),
               Contains("a.yaml: not valid YAML: more documents begin than there are lines"));
  }
  CHECK(text_of("a.yaml", "--- a\n--- b\n---\nc") == "abc");
}

TEST_CASE("YAML whose aliases stand for more text than memory holds is refused") {
  const std::string line(100, 'x');
  CHECK(text_of("a.yaml", "a: &a " + line + "\nb: *a\nc: *a\n") ==
        line + "\n" + line + "\n" + line);
  std::string names = "v0: &v0 x\n", contents = "v0: &v0 " + line + "\n";
  for (int i = 1; i < 60; ++i) {
    names += fmt::format("v{}: &v{} [*v{}, *v{}]\n", i, i, i - 1, i - 1);
  }
  contents += "all: [";
  for (int i = 0; i < 200; ++i) contents += i == 0 ? "*v0" : ", *v0";
  contents += "]\n";
  for (const std::string& text : {names, contents}) {
    CAPTURE(text);
    CHECK_THAT(error_of("a.yaml", text), Contains("with its aliases written out it is more than "
                                                  "16 times as long"));
  }
}

TEST_CASE("a YAML list that has itself as an element is refused") {
  CHECK_THAT(error_of("a.yaml", "&a [*a, *a]\n"), Contains("nested more than 64 levels deep"));
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

TEST_CASE("prepare counts odd documents and names the first of each kind") {
  const test::TemporaryDirectory folder;
  const std::string lines =
      "{\"text\": \"one\"}\n{\"text\": \" \\n\"}\n{\"text\": \"one\"}\n"
      "{\"text\": \"\xe9\"}\n{\"text\": \"\"}\n{\"text\": \"two\"}\n";
  const fs::path a = write_text(folder / "a.jsonl", lines), b = write_text(folder / "b.txt", "two");
  const auto run = [&](bool drop, std::vector<fs::path> inputs) {
    std::vector<std::string> report;
    prepare({.inputs = std::move(inputs),
             .tokenizer = "bytes",
             .out = folder / "out",
             .val_fraction = 0.0,
             .drop_repeated = drop,
             .report = [&](const std::string& line) { report.push_back(line); }});
    return report;
  };
  using Lines = std::vector<std::string>;
  CHECK(run(false, {a, b}) ==
        Lines{"2 documents are empty; the first is " + a.string() + ":2",
              "2 documents repeat others, which --drop-repeated leaves out; the first is " +
                  a.string() + ":3",
              "1 document is not valid UTF-8 and is left out; the first is " + a.string() + ":4"});
  CHECK(texts_in(folder / "out").first == "one \nonetwotwo");
  CHECK(run(true, {a, b})[1] ==
        "2 documents repeat others and are left out; the first is " + a.string() + ":3");
  CHECK(texts_in(folder / "out").first == "one \ntwo");
  CHECK(run(false, {b}).empty());
}

TEST_CASE(
    "repeated texts of several parts are left out whole, and one that only begins alike is not") {
  const test::TemporaryDirectory folder;
  std::string text;
  for (int i = 0; text.size() < 3 * kPartBytes; ++i) text += "line " + std::to_string(i) + "\n";
  const std::vector<fs::path> inputs = {write_text(folder / "a.txt", text),
                                        write_text(folder / "b.txt", text),
                                        write_text(folder / "c.txt", text + "end")};
  prepare({.inputs = inputs,
           .tokenizer = "bytes",
           .out = folder / "out",
           .val_fraction = 0.0,
           .drop_repeated = true});
  const bool equal = texts_in(folder / "out").first == text + text + "end";
  CHECK(equal);
}

TEST_CASE("a run that goes on leaves out what the killed run had read") {
  const test::TemporaryDirectory folder;
  const fs::path a = write_text(folder / "a.txt", "first"), b = write_text(folder / "b.jsonl", "{");
  const PrepareOptions options = {.inputs = {a, b},
                                  .tokenizer = "bytes",
                                  .out = folder / "out",
                                  .val_fraction = 0.0,
                                  .drop_repeated = true};
  CHECK_THROWS_WITH(prepare(options), Contains("b.jsonl:1: "));
  write_text(b, "{\"text\": \"first\"}\n{\"text\": \"second\"}\n");
  prepare(options);
  CHECK(texts_in(folder / "out").first == "firstsecond");
}

}  // namespace tessera
