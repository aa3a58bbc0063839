// The program as a person calls it: what it prints and which status it exits with.
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <sstream>

#include "runtime/file.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/reference.h"
#include "tools/data/manifest.h"
#include "tools/tessera/commands.h"

namespace tessera {
namespace {

using Catch::Contains;

/// Sends what is written to a stream elsewhere for the scope.
class Redirect {
 public:
  explicit Redirect(std::ostream& stream) : stream_(stream), old_(stream.rdbuf(text_.rdbuf())) {}
  ~Redirect() { stream_.rdbuf(old_); }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

  std::string text() const { return text_.str(); }

 private:
  std::ostream& stream_;
  std::ostringstream text_;
  std::streambuf* old_;
};

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome run(const std::vector<std::string>& arguments) {
  const Redirect out(std::cout);
  const Redirect err(std::cerr);
  const int status = run_program(arguments);
  return {status, out.text(), err.text()};
}

long lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("prepare prints one line and exits with 0") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "a.txt") << "hello ";
  std::ofstream(folder / "b.txt") << "world";
  const Outcome outcome =
      run({"prepare", "--input", folder / "a.txt", folder / "b.txt", "--tokenizer", "chars",
           "--out", folder / "out", "--val-fraction", "0.4"});
  REQUIRE(outcome.err.empty());
  REQUIRE(outcome.status == 0);
  REQUIRE(lines_of(outcome.out) == 1);
  REQUIRE_THAT(outcome.out, Contains("6 tokens to train on, 5 to validate, vocabulary 8 (chars), "
                                     "from 2 files"));
  REQUIRE(read_manifest(folder / "out").train_tokens == 6);
}

TEST_CASE("a tenth is kept for validation unless told otherwise") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "a.txt") << std::string(100, 'a');
  REQUIRE(
      run({"prepare", "--input", folder / "a.txt", "--tokenizer", "bytes", "--out", folder / "out"})
          .status == 0);
  REQUIRE(read_manifest(folder / "out").val_tokens == 10);
}

TEST_CASE("an error is one line on stderr and status 1") {
  const test::TemporaryDirectory folder;
  const Outcome outcome = run(
      {"prepare", "--input", folder / "no\nfile", "--tokenizer", "bytes", "--out", folder / "out"});
  REQUIRE(outcome.status == 1);
  REQUIRE(outcome.out.empty());
  REQUIRE(lines_of(outcome.err) == 1);
  REQUIRE_THAT(outcome.err, Contains("tessera: ") && Contains("no file"));
}

TEST_CASE("wrong usage exits with 2 and says so on stderr") {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"unknown"},
           {"prepare"},
           {"prepare", "--input", "a", "--out", "b"},
           {"prepare", "--input", "a", "--out", "b", "--tokenizer", "words"},
           {"prepare", "--input", "a", "--out", "b", "--tokenizer", "bytes", "--val-fraction", "1"},
           {"prepare", "--input", "a", "--out", "b", "--tokenizer", "bytes", "--val-fraction", "x"},
           {"config-reference", "surplus"}}) {
    CAPTURE(arguments);
    const Outcome outcome = run(arguments);
    REQUIRE(outcome.status == 2);
    REQUIRE_FALSE(outcome.err.empty());
    REQUIRE(outcome.out.empty());
  }
}

TEST_CASE("plan prints a page, --ranks of train is the key runtime.ranks") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "run.yaml") << "sharding: {strategy: fsdp}\n";
  const Outcome page = run({"plan", folder / "run.yaml", "--ranks", "4", "model.layers=2"});
  CHECK(page.status == 0);
  CHECK_THAT(page.out, Contains("fsdp on 4 ranks"));
  CHECK_THAT(run({"plan", folder / "run.yaml", "runtime.ranks=3"}).out, Contains("on 3 ranks"));
  const Outcome uneven =
      run({"train", folder / "run.yaml", "--ranks", "3", "data.train=x", "data.batch_size=4"});
  CHECK(uneven.status == 1);
  CHECK_THAT(uneven.err, Contains("the number of ranks, 3"));
  CHECK(run({"train", folder / "run.yaml", "--ranks", "0"}).status == 2);
}

TEST_CASE("every example is a configuration that suits its ranks") {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(TESSERA_SOURCE_DIR) / "examples")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path());
    CHECK(run({"plan", entry.path().string()}).status == 0);
    ++examples;
  }
  CHECK(examples >= 9);
}

TEST_CASE("help is printed on request, with status 0") {
  const Outcome outcome = run({"--help"});
  REQUIRE(outcome.status == 0);
  REQUIRE_THAT(outcome.out, Contains("prepare") && Contains("config-reference"));
  REQUIRE_THAT(run({"prepare", "--help"}).out, Contains("--val-fraction"));
}

TEST_CASE("config-reference prints the reference and nothing else") {
  const Outcome outcome = run({"config-reference"});
  REQUIRE(outcome.status == 0);
  REQUIRE(outcome.out == configuration_reference());
}

}  // namespace tessera
