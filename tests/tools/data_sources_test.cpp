// data.train and data.validation as lists.
#include "tools/config/data_sources.h"

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "tools/config/parse.h"

namespace tessera {
namespace {

using Catch::Contains;

Config parse(const std::string& data) {
  return parse_config("data:\n" + data, "run.yaml", {});
}

std::string error_of(const std::string& data) {
  return test::error_of([&] { parse(data); });
}

}  // namespace

TEST_CASE("data.train is a path or a list of sources, and is written so that it reads back") {
  const Config list = parse(
      "  train:\n"
      "    - {path: 'a: b, [c].bin', weight: 0.75}\n"
      "    - {path: web.bin, from_step: 10, until_step: 20}\n"
      "  mixture: by_epochs\n"
      "  validation: [{name: web-2, path: v.bin}]\n");
  REQUIRE(list.data.train.sources.size() == 2);
  CHECK(list.data.train.sources[0] == TrainingSource{.path = "a: b, [c].bin", .weight = 0.75});
  CHECK(list.data.train.sources[1] ==
        TrainingSource{.path = "web.bin", .from_step = 10, .until_step = 20});
  CHECK(list.data.mixture == MixtureKind::by_epochs);
  CHECK(list.data.validation == std::vector<ValidationSource>{{"web-2", "v.bin"}});
  const Config again = parse_config(to_yaml(list), "again.yaml", {});
  CHECK(again.data.train == list.data.train);
  CHECK(again.data.validation == list.data.validation);
  const std::vector<std::string> overrides = {"data.train=" + to_string(list.data.train)};
  CHECK(parse_config("", "", overrides).data.train == list.data.train);
  CHECK(parse("  train: '[ab]_*.bin'\n").data.train == TrainingData("[ab]_*.bin"));
  CHECK(parse("  train:\n").data.train.empty());
}

TEST_CASE("a mistake in a list is named with its line and key") {
  CHECK_THAT(error_of("  train:\n    - {path: a.bin}\n    - {path: b.bin, wieght: 2}\n"),
             Contains("run.yaml:4: data.train: unknown key 'wieght'; did you mean 'weight'?"));
  CHECK_THAT(error_of("  train:\n    - {path: a.bin, weight: 0}\n"),
             Contains("run.yaml:3: data.train: weight: expected a number > 0, got "));
  CHECK_THAT(error_of("  train: [{weight: 1}]\n"), Contains("the source has no key 'path'"));
  CHECK_THAT(error_of("  train: [a.bin]\n"), Contains("expected a source such as {path: "));
  CHECK_THAT(error_of("  train: []\n"), Contains("the list is empty"));
  CHECK_THAT(error_of("  train: [{path: a, path: b}]\n"), Contains("'path' occurs twice"));
  CHECK_THAT(error_of("  train: [{path: [a]}]\n"), Contains("expected a key and one value"));
  CHECK_THAT(error_of("  train: [{path: a, from_step: 5, until_step: 4}]\n"),
             Contains("from_step 5 is after until_step 4"));
  CHECK_THAT(error_of("  validation: [{name: a, path: x}, {name: a, path: y}]\n"),
             Contains("two sources have the name a"));
  CHECK_THAT(error_of("  validation: [{name: 'a b', path: x}]\n"), Contains("letters, digits"));
  CHECK_THAT(error_of("  validation: [{path: x}]\n"), Contains("no key 'name'"));
  CHECK_THAT(error_of("  validation: v.bin\n"), Contains("expected a list of sources"));
  const std::vector<std::string> bad = {"data.train=[{path: a}, {weight: 2}]"};
  CHECK_THAT(test::error_of([&] { parse_config("", "", bad); }),
             Contains("command line: data.train: character 13: the source has no key 'path'"));
}

}  // namespace tessera
