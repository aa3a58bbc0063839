// Hints for the names of other trainers.
#include "tools/config/synonyms.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "runtime/error.h"
#include "runtime/file.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tools/config/keys.h"
#include "tools/config/parse.h"

namespace tessera {
namespace {

using Catch::Contains;

/// The message of the error that parsing raises.
std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return test::error_of([&] { parse_config(yaml, "run.yaml", overrides); });
}

/// The parts of a text between pairs of backticks.
std::vector<std::string> in_backticks(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t begin = text.find('`'), end = text.find('`', begin + 1);
    if (begin == text.npos || end == text.npos) return parts;
    parts.emplace_back(text.substr(begin + 1, end - begin - 1));
    text.remove_prefix(end + 1);
  }
}

/// The keys of a synonym: one, or two as in "a' and 'b".
std::vector<std::string> keys_in(std::string_view here) {
  constexpr std::string_view kAnd = "' and '";
  const std::size_t end = here.find(kAnd);
  if (end == here.npos) return {std::string(here)};
  return {std::string(here.substr(0, end)), std::string(here.substr(end + kAnd.size()))};
}

}  // namespace

TEST_CASE("names of other trainers are answered with the names here") {
  CHECK(error_of("model:\n  n_layer: 4\n") ==
        "run.yaml:2: unknown key 'model.n_layer'; it is called 'model.layers' here");
  CHECK_THAT(error_of("data:\n  block_size: 4\n"),
             Contains("'data.sequence_length' and 'model.context'"));
  CHECK_THAT(error_of("lr: 4\n"), Contains("'optimizer.learning_rate'"));
  CHECK_THAT(error_of("", {"train.max_iters=9"}), Contains("'train.steps'"));
  for (const auto& [given, advice] :
       {std::pair("runtime.compute_dtype=bfloat16", "write bf16"),
        std::pair("runtime.device=gpu", "write cuda"),
        std::pair("sharding.strategy=FSDP", "write fsdp"),
        std::pair("optimizer.nesterov=True", "write true"),
        std::pair("train.steps=1e3", "write 1000"), std::pair("train.steps=1E3", "write 1000"),
        std::pair("train.steps=1_000", "write 1000"),
        std::pair("data.batch_size=1_2_3", "write 123")}) {
    CAPTURE(given);
    CHECK_THAT(error_of("", {given}), Catch::EndsWith(advice));
  }
  CHECK_THAT(error_of("train: {steps: 1_000_000}\n"), Catch::EndsWith("write 1000000"));
  for (const char* given :
       {"sharding.strategy=zero9", "train.steps=_1", "train.steps=1_", "train.steps=1__0"}) {
    CAPTURE(given);
    CHECK_THAT(error_of("", {given}), !Contains("write"));
  }
}

TEST_CASE("every synonym is no key, and means one that exists") {
  Config config;
  std::set<std::string, std::less<>> names;
  for (const Key& key : keys_of(config)) names.insert(key.name);
  for (const Synonym& synonym : key_synonyms()) {
    CAPTURE(synonym.name);
    for (const std::string_view key : keys_in(synonym.here)) CHECK(names.contains(key));
    for (const std::string& name : names) CHECK(name != synonym.name);
    CHECK_THAT(error_of(std::string(synonym.name) + ": 1\n"),
               Contains("it is called '" + std::string(synonym.here) + "' here"));
  }
  for (const Synonym& synonym : value_synonyms()) {
    CAPTURE(synonym.name);
    const std::string value(synonym.here.substr(0, synonym.here.find(' ')));
    CHECK(value_synonym(synonym.name) == synonym.here);
    CHECK(std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return error_of("", {name + "=" + std::string(synonym.name)})
          .ends_with("; write " + std::string(synonym.here));
    }));
  }
}

TEST_CASE("names that end as intervals do are train's") {
  CHECK_THAT(error_of("", {"train.sample_interval=1"}), Contains("'train.sample_every'"));
  CHECK_THAT(error_of("", {"checkpoint_freq=1"}), Contains("'train.checkpoint_every'"));
  CHECK_THAT(error_of("", {"train.eval_steps=1"}), Contains("'train.eval_every'"));
  CHECK_THAT(error_of("", {"train.paint_interval=1"}), !Contains("paint_every"));
}

TEST_CASE("the book lists every name that has a hint, and no other") {
  const std::string page = read_text_file(TESSERA_SOURCE_DIR "/docs/names.md");
  const std::size_t begin = page.find("\n## Names that get a hint\n");
  REQUIRE(begin != page.npos);
  std::istringstream lines(page.substr(begin, page.find("\n## ", begin + 1) - begin));
  using Pairs = std::set<std::pair<std::string, std::string>>;
  Pairs listed, known;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::size_t middle = line.find(" | ");
    for (const std::string& name : in_backticks(line.substr(0, middle))) {
      for (const std::string& here : in_backticks(line.substr(middle))) listed.emplace(name, here);
    }
  }
  for (const Synonym& synonym : key_synonyms()) {
    for (const std::string& key : keys_in(synonym.here)) known.emplace(synonym.name, key);
  }
  for (const Synonym& synonym : value_synonyms()) known.emplace(synonym.name, synonym.here);
  CHECK(listed == known);
}

}  // namespace tessera
