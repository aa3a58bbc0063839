// The program as a person calls it: its output and its exit status.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "runtime/file.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/comm/world.h"
#include "tests/support/child.h"
#include "tests/tools/run_program.h"
#include "tests/tools/shell.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/reference.h"
#include "tools/data/manifest.h"
#include "tools/program/process.h"
#include "tools/tessera/commands.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Outcome;
using test::run;
using test::shell;
using test::ShellOutcome;

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

TEST_CASE("encode prints the ids of its input on one line") {
  const std::string folder = TESSERA_SOURCE_DIR "/tests/golden/tokenizers/llama4";
  const auto encoded = [&](const std::string& text, const std::vector<std::string>& more) {
    std::istringstream input(text);
    std::streambuf* const terminal = std::cin.rdbuf(input.rdbuf());
    std::vector<std::string> arguments = {"encode", "--tokenizer", folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    std::cin.rdbuf(terminal);
    CHECK(outcome.status == 0);
    CHECK(outcome.err.empty());
    return outcome.out;
  };
  // Bytes begin at id 0 in the order of their spelling: ! is 0.
  CHECK(encoded("!", {}) == "0\n");
  CHECK(encoded("!<|end_of_text|>\"", {}) == "0 1001 1\n");
  CHECK(encoded("!<|end_of_text|>", {"--plain"}).starts_with("0 27 "));
  CHECK(encoded("", {}) == "\n");
  const test::TemporaryDirectory empty;
  const auto unreadable =
      test::shell("tessera encode --tokenizer " + folder + " < " + empty.path().string(), empty);
  CHECK(unreadable.status == 1);
  CHECK(unreadable.err == "tessera: cannot read standard input: Is a directory\n");
  const Outcome missing = run({"encode", "--tokenizer", "no/folder"});
  CHECK(missing.status == 1);
  CHECK_THAT(missing.err, Contains("no/folder: no tokenizer here"));
}

TEST_CASE("a tenth is kept for validation by default") {
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
  const Outcome outcome = run({"prepare", "--input", "a", "--out", "b", "--tokenizer", "words"});
  REQUIRE_THAT(outcome.err, Contains("--tokenizer: expected bytes, chars or a folder; there is no "
                                     "folder words"));
}

TEST_CASE("plan prints a page, --ranks of train is the key runtime.ranks") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "run.yaml") << "sharding: {strategy: fsdp}\n";
  const Outcome page = run({"plan", folder / "run.yaml", "--ranks", "4", "model.layers=2"});
  CHECK(page.status == 0);
  CHECK_THAT(page.out, Contains("fsdp on 4 ranks"));
  CHECK_THAT(run({"plan", folder / "run.yaml", "runtime.ranks=3", "data.batch_size=6"}).out,
             Contains("on 3 ranks"));
  const std::string config = folder / "run.yaml";
  CHECK_THAT(run({"plan", config, "--ranks", "2-8", "model.layers=2"}).out,
             Contains("The rank with the most, in MiB:") && Contains("\n         8 "));
  const Outcome json = run({"plan", config, "--json", "model.layers=2", "runtime.ranks=2"});
  CHECK(nlohmann::json::parse(json.out)["plans"][0]["ranks"] == 2);
  const std::string trace = folder / "trace.json";
  const std::vector<std::string> traced = {"plan", config, "--machine", "h100", "--trace", trace};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  CHECK(run(with(traced, {"--json", "--ranks", "2"})).status == 0);
  CHECK(nlohmann::json::parse(std::ifstream(trace))["traceEvents"].size() > 2);
  CHECK_THAT(run(with(traced, {"--ranks", "2-4"})).err, Contains("one number of ranks"));
  CHECK_THAT(run({"plan", config, "--ranks", "2;4"}).err, Contains("expected numbers from 1"));
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

TEST_CASE("an override written as an option is wrong usage, with the right form") {
  const Outcome outcome = run({"train", "run.yaml", "--optimizer.learning_rate=1e-3"});
  CHECK(outcome.status == 2);
  CHECK_THAT(outcome.err, Contains("without the dashes: 'optimizer.learning_rate=1e-3'"));
  // A value of another option may begin with dashes.
  const Outcome hosts = run({"launch", "--ranks", "2", "--mpirun-options", "--hostfile hosts.txt",
                             "--", "train", "nowhere.yaml"});
  CHECK_THAT(hosts.err, Catch::StartsWith("tessera: ") && !Contains("dashes"));
}

TEST_CASE("closed standard descriptors leave the files of a run whole") {
  const test::TemporaryDirectory folder;
  const Config config = test::tiny_run(folder);
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  const std::string train = "tessera train " + (folder / "run.yaml").string();
  CHECK(shell(train + " >&-", folder).status == 0);
  CHECK(test::metrics_of(config.train.dir).size() == 12);  // every line is JSON
  CHECK(shell("( " + train + " <&- >&- 2>&- )", folder).status == 0);
  CHECK(test::metrics_of(config.train.dir).size() == 12);
}

TEST_CASE("standard output that cannot be written is an error, after the work is done") {
  const test::TemporaryDirectory folder;
  const Config config = test::tiny_run(folder);
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  for (const std::string& command :
       {std::string("config-reference"), "plan " + (folder / "run.yaml").string(),
        "train " + (folder / "run.yaml").string()}) {
    CAPTURE(command);
    const ShellOutcome outcome = shell("tessera " + command + " > /dev/full", folder);
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.err, Contains("standard output could not be written"));
  }
  CHECK(std::filesystem::exists(config.train.dir / "model/model.safetensors"));
  // A reader that leaves does not end the run.
  const ShellOutcome piped =
      shell("tessera train " + (folder / "run.yaml").string() + " | head -1 > /dev/null", folder);
  CHECK_THAT(piped.err, Contains("standard output could not be written: Broken pipe"));
  CHECK(std::filesystem::exists(config.train.dir / "model/model.safetensors"));
}

TEST_CASE("a signal stops a run after its step with a checkpoint, and the same command continues") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 1000000000;
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  for (const std::string name : {"INT", "TERM"}) {
    CAPTURE(name);
    // The program sets its handlers before it writes config.yaml.
    const std::string file = (config.train.dir / "metrics.jsonl").string();
    const ShellOutcome outcome =
        shell("rm -rf " + config.train.dir.string() + "; tessera train " +
                  (folder / "run.yaml").string() + " & while [ ! -s " + file +
                  " ]; do sleep 0.1; done; kill -" + name + " $!; wait $!",
              folder);
    CHECK(outcome.status == 0);
    CHECK(outcome.err == "\nstopping after this step; a second signal stops at once\n");
    CHECK_THAT(outcome.out, Contains("stopped by SIG" + name + " after step ") &&
                                Contains("of 1000000000; the same command continues, or"));
    const std::vector<CheckpointFolder> saved = checkpoints_in(config.train.dir);
    REQUIRE(saved.size() == 1);
    const std::string steps = std::to_string(saved[0].step + 1);
    const std::string command = "tessera train " + (config.train.dir / "config.yaml").string();
    CHECK_THAT(outcome.out, Contains("  " + command + "\n"));
    CHECK(shell(command + " train.steps=" + steps + " > /dev/null", folder).status == 0);
    CHECK(std::filesystem::exists(config.train.dir / "model"));
  }
}

TEST_CASE("a folder that is deleted during its run is an error, and does not appear again") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 1000000000;
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  const std::string run = config.train.dir.string();
  const ShellOutcome outcome = shell(
      "tessera train " + (folder / "run.yaml").string() + " > /dev/null & while [ ! -s " + run +
          "/metrics.jsonl ]; do sleep 0.1; done; mv " + run + " " + run + ".moved; wait $!",
      folder);
  CHECK(outcome.status == 1);
  CHECK(lines_of(outcome.err) == 1);
  CHECK_THAT(outcome.err,
             Contains("tessera: train.dir " + run + " was deleted, moved or replaced"));
  CHECK_FALSE(std::filesystem::exists(config.train.dir));
}

TEST_CASE("a limit of file sizes is one line, and no temporary remains") {
  const test::TemporaryDirectory folder;
  const Config config = test::tiny_run(folder);
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  const std::string prepare = "tessera prepare --tokenizer bytes --input " +
                              (folder / "text.txt").string() + " --out " +
                              (folder / "limited").string();
  const ShellOutcome train = shell(
      "ulimit -f 16; tessera train " + (folder / "run.yaml").string() + " > /dev/null", folder);
  for (const ShellOutcome& outcome : {train, shell("ulimit -f 4; " + prepare, folder)}) {
    CHECK(outcome.status == 1);
    CHECK(lines_of(outcome.err) == 1);
    CHECK_THAT(outcome.err, Contains("File too large"));
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    CHECK(entry.path().extension() != ".tmp");
  }
  CHECK_FALSE(std::filesystem::exists(config.train.dir / "model"));
}

TEST_CASE("a process that leaves the report to another one ends without a line") {
  const test::Child child = test::run_child([] {
    start_process("test");
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ::kill(::getpid(), SIGTERM);  // as the launcher does
    }).detach();
    fail_late({}, "of another process");
  });
  CHECK(WIFSIGNALED(child.status));
  CHECK(WTERMSIG(child.status) == SIGTERM);
  CHECK(child.output.empty());
}

}  // namespace tessera
