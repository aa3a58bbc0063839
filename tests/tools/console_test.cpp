// The output of a run while it trains: the console, log.txt and the events of metrics.jsonl.
#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <regex>

#include "tests/support/paths.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/train/continuing.h"
#include "tools/train/events.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using nlohmann::json;
using test::events_of;
using test::TemporaryDirectory;
using test::tiny_run;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// The bytes that `tessera train FILE` writes to a terminal of so many columns.
std::string shown_on_terminal(const fs::path& file, unsigned short columns) {
  winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string program = TESSERA_BINARY_DIR "/bin/tessera";
    ::execl(program.c_str(), "tessera", "train", file.c_str(), nullptr);
    ::_exit(127);
  }
  std::string text;
  char buffer[4096];
  // A terminal without a program at its other end cannot be read.
  for (ssize_t n = 0; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(terminal);
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(status == 0);
  return text;
}

std::vector<std::string> names_of(const std::vector<json>& events) {
  std::vector<std::string> names;
  for (const json& event : events) names.push_back(event["event"]);
  return names;
}

}  // namespace

TEST_CASE("the bar fits a terminal of 40 columns and is gone where a line stands") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 30;
  config.train.log_every = 10;
  config.train.progress = ProgressMode::automatic;
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  const std::string text = shown_on_terminal(folder / "run.yaml", 40);
  // Every bar begins with the erasure of the line and ends before the next one.
  const std::string erase = "\r\x1b[K";
  int bars = 0;
  for (std::size_t at = text.find(erase); at != std::string::npos;) {
    const std::size_t next = text.find(erase, at + 1);
    const std::string drawn = text.substr(at + erase.size(), next - at - erase.size());
    if (drawn.find('\n') == std::string::npos && !drawn.empty()) {
      ++bars;
      CAPTURE(drawn);
      CHECK(drawn.size() < 40);
      CHECK_THAT(drawn, Contains("/30  ") && Contains(" left"));
    }
    at = next;
  }
  CHECK(bars >= 1);
  // Each of the lines of steps 1, 10, 20 and 30 begins right after an erasure.
  const std::regex line("\r\x1b\\[K[0-9]{2}:[0-9]{2}:[0-9]{2} +(1|10|20|30)/30  [^\n]*\r\n");
  CHECK(std::distance(std::sregex_iterator(text.begin(), text.end(), line), {}) == 4);
}

TEST_CASE("log.txt has the lines of the console with date and time, also of a run that continues") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 4;
  config.train.checkpoint_every = 4;
  train(config);
  config.train.steps = 8;
  train(config);
  const auto lines = split(read_text_file(config.train.dir / "log.txt"), '\n');
  const std::regex stamp("20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}  .*");
  int steps = 0, headings = 0;
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK(std::regex_match(line, stamp));
    if (std::regex_search(line, std::regex(" [1-8]/[48]  "))) ++steps;
    if (line.find("tokens/s") != std::string::npos) ++headings;
  }
  CHECK(steps == 8);
  CHECK(headings == 2);
  config.train.resume = "never";
  train(config);
  CHECK(read_text_file(config.train.dir / "earlier.2" / "log.txt").size() > 100);
}

TEST_CASE("metrics.jsonl has an event for each start, evaluation, checkpoint, resume and end") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  config.train.steps = 6;
  config.train.checkpoint_every = 6;
  config.train.keep_last = 9;
  train(config);
  const fs::path run = config.train.dir;
  const auto before = events_of(run);
  CHECK(names_of(before) == std::vector<std::string>{"start", "eval", "eval", "checkpoint", "end"});
  CHECK(before[0]["strategy"] == "fsdp");
  CHECK(before[0]["ranks"] == 2);
  CHECK(before[0]["tokens_per_step"] == 96);
  CHECK(before[0]["parameters"].get<std::int64_t>() > 0);
  CHECK(before[2]["step"] == 6);
  CHECK(before[2]["val_loss"] == test::metrics_of(run).back()["val_loss"]);
  CHECK(before[2]["sequences"].get<std::int64_t>() > 4);
  CHECK(before[2]["ms"].get<double>() > 0.0);
  CHECK(before[3]["path"] == (run / "step-000006").string());
  for (const json& event : before) {
    const auto& known = run_events();
    CHECK(std::any_of(known.begin(), known.end(), [&](const EventDescription& description) {
      return event["event"] == std::string(description.name);
    }));
    CHECK(event["elapsed_s"].get<double>() >= 0.0);
  }
  config.train.steps = 7;
  train(config);
  // The end of the first run was after its last step, so it stays.
  const auto after = events_of(run);
  REQUIRE(after.size() > before.size() + 2);
  CHECK(std::vector<json>(after.begin(), after.begin() + 5) == before);
  CHECK(after[5]["event"] == "start");
  CHECK(after[5]["step"] == 6);
  CHECK(after[6]["event"] == "resume");
  CHECK(after[6]["path"] == (run / "step-000006").string());
}

TEST_CASE("steps that change nothing and ways back are events") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  test::diverge(config);
  config.train.steps = 3;
  config.train.on_nonfinite = OnNonfinite::skip;
  train(config);
  const auto skips = events_of(config.train.dir, "skip");
  REQUIRE(skips.size() == 2);
  CHECK(skips[0]["step"] == 2);
  CHECK(skips[0]["reason"] == "not finite");
  CHECK(skips[0]["gradient_norm"].is_null());

  config.train.on_nonfinite = OnNonfinite::rollback;
  config.train.checkpoint_every = 1;
  config.train.dir = folder / "rollback";
  CHECK_THROWS(train(config));
  const auto back = events_of(config.train.dir, "rollback");
  REQUIRE_FALSE(back.empty());
  CHECK(back[0]["to"] == 1);
}

TEST_CASE("the command that continues a run names its folder, its launcher and its ranks") {
  Config config;
  config.train.dir = "runs/a";
  CHECK(command_to_continue(config, 4, {}) == "tessera train runs/a/config.yaml");
  CHECK(command_to_continue(config, 4, {.kind = Launch::Kind::mpi}) ==
        "mpirun -np 4 tessera train runs/a/config.yaml");
  CHECK(command_to_continue(config, 4, {.kind = Launch::Kind::tcp}) ==
        "torchrun ... --no-python tessera train runs/a/config.yaml");
  const Launch own = {.kind = Launch::Kind::tcp, .command = "tessera launch --ranks auto -- train"};
  CHECK(command_to_continue(config, 4, own) ==
        "tessera launch --ranks auto -- train runs/a/config.yaml");
  config.train.dir = "my runs/it's";
  config.train.resume = "never";
  CHECK(command_to_continue(config, 1, {}) ==
        "tessera train 'my runs/it'\\''s/config.yaml' --resume");
}

}  // namespace tessera
