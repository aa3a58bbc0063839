// Configurations by name: a file, or a preset.
#include "tools/config/find.h"

#include <catch2/catch.hpp>

#include "runtime/error.h"
#include "runtime/file.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/run_program.h"

namespace tessera {

using Catch::Contains;
using test::TemporaryDirectory;

TEST_CASE(
    "a configuration is a file, or else a preset with some settings, and overrides come last") {
  const TemporaryDirectory folder;
  const std::string file = folder / "gpt2";
  const std::vector<std::string> overrides = {"train.steps=7"};
  const std::string settings = "train: {steps: 3, log_every: 4}";
  write_file_atomically(file, "model: {preset: llama3-mini}\ntrain: {steps: 5}\n");
  const Config of_file = find_config(file, overrides, settings);
  CHECK(of_file.model.preset == "llama3-mini");
  CHECK(of_file.train.steps == 7);
  CHECK(of_file.train.log_every == Config().train.log_every);
  const Config of_preset = find_config("gpt2-xl", overrides, settings);
  CHECK(of_preset.model.preset == "gpt2-xl");
  CHECK(of_preset.train.steps == 7);
  CHECK(of_preset.train.log_every == 4);
  CHECK(find_config("gpt2", {}).data.batch_size == Config().data.batch_size);
}

TEST_CASE("a name that is neither file nor preset is answered with the presets") {
  CHECK_THROWS_WITH(find_config("gpt2-mny", {}),
                    "gpt2-mny: there is no such file, and no preset of this name; did you mean "
                    "gpt2-mini?");
  CHECK_THROWS_WITH(find_config("none.yaml", {}), Contains("the presets are gpt2, gpt2-medium"));
}

TEST_CASE("tessera plan and tessera train take a preset") {
  const test::Outcome plan = test::run({"plan", "gpt2-mini", "--ranks", "4"});
  CHECK(plan.status == 0);
  CHECK_THAT(plan.out, Contains("fsdp on 4 ranks"));
  const test::Outcome train = test::run({"train", "gpt2-mini"});
  CHECK(train.status == 1);
  CHECK_THAT(train.err, Contains("data.train is not set"));
}

}  // namespace tessera
