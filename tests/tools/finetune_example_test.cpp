// examples/finetune.yaml: from conversations to a model that answers.
#include <catch2/catch.hpp>

#include "models/tokenizers/tokenizer.h"
#include "runtime/json.h"
#include "tests/support/paths.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"

namespace tessera {
namespace {

using test::Outcome;
using test::run;
namespace fs = std::filesystem;

const fs::path kExamples = TESSERA_SOURCE_DIR "/examples";

}  // namespace

TEST_CASE("the fine-tuning example learns to answer, and ends its answer", "[cpu]") {
  const test::TemporaryDirectory folder;
  const fs::path data = folder / "data", model = folder / "run";
  const Outcome prepared =
      run({"prepare", "--input", (kExamples / "finetune/questions.jsonl").string(),
           "--answers-only", "--tokenizer", (kExamples / "finetune/tokenizer").string(),
           "--val-fraction", "0", "--out", data.string()});
  INFO(prepared.err);
  REQUIRE(prepared.status == 0);
  CHECK(fs::exists(data / "train.marks"));
  const Outcome trained =
      run({"train", (kExamples / "finetune.yaml").string(),
           "data.train=" + (data / "train.bin").string(), "train.dir=" + model.string(),
           "runtime.device=cpu",
           // Half as many steps as the example's, which are longer.
           "train.epochs=30", "optimizer.learning_rate=0.012", "runtime.threads=1"});
  INFO(trained.err);
  REQUIRE(trained.status == 0);
  CHECK(test::metrics_of(model).back().value("loss", 9.0) < 0.1);
  const Outcome answer =
      run({"generate", "--model", model.string(), "--chat", "--prompt", "What is 3 + 4?",
           "--temperature", "0", "--tokens", "40", "--device", "cpu"});
  INFO(answer.err);
  REQUIRE(answer.status == 0);
  CHECK_THAT(answer.out, Catch::EndsWith("three and four are seven.\n"));
  // Other programs stop there, too.
  const auto tokenizer = Tokenizer::load(model / "model");
  const nlohmann::json generation = read_json_file(model / "model/generation_config.json");
  CHECK(generation["eos_token_id"] == nlohmann::json(tokenizer->encode("<|eot_id|>")));
  CHECK(run({"prepare", "--input", (kExamples / "finetune/questions.jsonl").string(),
             "--answers-only", "--tokenizer", model.string(), "--out", (folder / "again").string()})
            .status == 0);
}

}  // namespace tessera
