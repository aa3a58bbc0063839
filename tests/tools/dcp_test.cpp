// tessera checkpoint convert: folders of torch.distributed.checkpoint (tests/golden/dcp), read and written.
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/safetensors.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"
#include "tests/support/paths.h"
#include "tests/support/rank.h"
#include "tests/tools/run_program.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/checkpoint/dcp_export.h"
#include "tools/checkpoint/dcp_folder.h"
#include "tools/checkpoint/dcp_import.h"
#include "tools/config/find.h"
#include "tools/train/run_state.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::error_of;
using test::TemporaryDirectory;

const fs::path kGolden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/dcp";
constexpr std::int64_t kRows = 4, kTokens = 12;

/// The keys of the model and the optimizer in a golden folder.
std::vector<std::string> keys_of(const std::string& name) {
  return {std::string("model.preset=") + (name == "torchtitan" ? "llama3-8b" : "llama3-mini"),
          "model.layers=2",
          "model.width=24",
          "model.heads=3",
          "model.kv_heads=1",
          "model.mlp_width=40",
          "model.vocab_size=61",
          "model.context=64",
          "data.train=synthetic:copy",
          "data.batch_size=4",
          "data.sequence_length=12",
          "optimizer.learning_rate=1e-3",
          "optimizer.schedule=constant",
          "optimizer.clip_norm=0",
          "train.steps=5",
          "train.log_every=1",
          "train.checkpoint_every=5",
          "runtime.threads=1",
          "runtime.device=cpu"};
}

Config config_of(const std::string& name) {
  const std::vector<std::string> keys = keys_of(name);
  return find_config("llama3-mini", keys);
}

DcpNames names_of(const std::string& name) {
  return name == "torchtitan" ? DcpNames::torchtitan : DcpNames::hf;
}

/// The batches behind the checkpoint. Step 1 has the first.
BatchSource golden_batches(const SafetensorsFile& file) {
  return BatchSource([&](std::int64_t step, std::int64_t first_row, std::int64_t rows) {
    const auto rows_of = [&](const char* name) {
      const auto all = file.tensor(name).to_vector<std::int32_t>();
      const auto begin =
          all.begin() + static_cast<std::ptrdiff_t>(((step - 1) * kRows + first_row) * kTokens);
      return Tensor::from(std::vector<std::int32_t>(begin, begin + rows * kTokens),
                          {rows, kTokens});
    };
    return Batch{rows_of("input_ids"), rows_of("targets"), Tensor()};
  });
}

/// A copy of a golden folder that a test may damage.
fs::path copied(const TemporaryDirectory& folder, const std::string& name) {
  fs::copy(kGolden / name, folder / name);
  return folder / name;
}

void overwrite(const fs::path& path, std::size_t at, const std::string& text) {
  std::string all = read_text_file(path);
  all.replace(at, text.size(), text);
  std::ofstream(path, std::ios::binary) << all;
}

}  // namespace

TEST_CASE("a folder of PyTorch becomes a checkpoint with its weights and moments, bit for bit",
          "[cpu]") {
  const auto name = GENERATE(as<std::string>(), "torchtitan", "transformers");
  const TemporaryDirectory folder;
  const std::vector<std::string> lines =
      import_dcp(kGolden / name, config_of(name), folder / "run");
  CHECK(lines[0] == (folder / "run/step-000003").string());
  CHECK_THAT(lines.back(), Contains("left out: ") &&
                               Contains(name == "torchtitan" ? "dataloader" : "param_groups"));
  CheckpointReader reader(folder / "run/step-000003");
  CHECK(reader.problems().empty());
  const test::Rank rank;
  const SafetensorsFile expected(kGolden / name / "expected.safetensors");
  std::size_t compared = 0;
  for (const auto& [stored, info] : expected.tensors()) {
    if (stored.size() < 2 || stored[1] != '.') continue;
    const std::string ours = stored.substr(2) + (stored[0] == 'w' ? "" : "." + stored.substr(0, 1));
    INFO(ours);
    REQUIRE(reader.tensor(ours).shape == info.shape);
    const Tensor values = expected.tensor(stored);
    std::vector<std::byte> bytes(values.bytes());
    reader.read(ours, 0, bytes);
    CHECK(std::memcmp(bytes.data(), values.raw(), bytes.size()) == 0);
    ++compared;
  }
  CHECK(compared == reader.manifest().tensors.size());
}

TEST_CASE("training continues from a folder of PyTorch with PyTorch's next losses", "[cpu]") {
  const auto name = GENERATE(as<std::string>(), "torchtitan", "transformers");
  const int ranks = GENERATE(1, 2);
  const TemporaryDirectory folder;
  Config config = config_of(name);
  import_dcp(kGolden / name, config, folder / "run");
  if (ranks > 1) config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = ranks;
  const SafetensorsFile expected(kGolden / name / "expected.safetensors");
  std::vector<double> losses;
  {
    const test::Rank rank;
    losses = expected.tensor("losses").to_vector<double>();
  }
  const BatchSource batches = golden_batches(expected);
  test::with_session(
      config, ranks, [&](TrainingSession& session, const BatchSource&, Communicator& world) {
        const Restored restored = restore(session, folder / "run/step-000003");
        REQUIRE(restored.problem.empty());
        CHECK(restored.position.step == 3);
        CHECK(session.optimizer().steps() == 3);
        for (std::size_t i = 0; i < losses.size(); ++i) {
          const StepResult result = session.step(static_cast<std::int64_t>(i) + 1, batches);
          if (world.rank() == 0) {
            CHECK(result.loss == Approx(losses[i]).epsilon(1e-5).margin(0.0));
          }
        }
      });
}

TEST_CASE("a folder of PyTorch comes back from a checkpoint bit for bit", "[cpu]") {
  const auto name = GENERATE(as<std::string>(), "torchtitan", "transformers");
  const TemporaryDirectory folder;
  import_dcp(kGolden / name, config_of(name), folder / "run");
  const auto lines = export_dcp(folder / "run", folder / "back", names_of(name));
  CHECK_THAT(lines[1], Contains("left out: the position in the data"));
  const DcpFolder before(kGolden / name), after(folder / "back");
  for (const auto& [stored, tensor] : before.tensors()) {
    std::string written = stored.starts_with("model.model.") || stored == "model.lm_head.weight"
                              ? stored.substr(std::strlen("model."))
                              : stored;
    if (written.starts_with("optim.")) written = "optimizer." + written.substr(6);
    INFO(stored);
    REQUIRE(after.tensors().contains(written));
    CHECK(after.tensors().at(written).dtype == tensor.dtype);
    CHECK(after.tensors().at(written).shape == tensor.shape);
    CHECK(after.read(written) == before.read(stored));
  }
  CHECK(after.tensors().size() == before.tensors().size());
  CHECK_THAT(error_of([&] { export_dcp(folder / "run", folder / "back", DcpNames::hf); }),
             Contains("back has a checkpoint; choose another folder"));
}

TEST_CASE("the program converts a folder of PyTorch, and a run continues from it", "[cpu]") {
  const TemporaryDirectory folder;
  const std::string run = (folder / "run").string();
  std::vector<std::string> arguments = {"checkpoint", "convert", (kGolden / "torchtitan").string(),
                                        "--out",      run,       "--config",
                                        "llama3-mini"};
  std::vector<std::string> keys = keys_of("torchtitan");
  arguments.insert(arguments.end(), keys.begin(), keys.end());
  const test::Outcome converted = test::run(arguments);
  CHECK(converted.err.empty());
  CHECK(converted.status == 0);
  CHECK_THAT(converted.out, Contains("step-000003\n  the run begins with the first batch"));
  keys.insert(keys.begin(), {"train", "llama3-mini", "train.dir=" + run});
  const test::Outcome trained = test::run(keys);
  CHECK(trained.err.empty());
  CHECK(trained.status == 0);
  CHECK(test::metrics_of(folder / "run").size() == 2);  // steps 4 and 5

  const test::Outcome back =
      test::run({"checkpoint", "convert", run, "--out", (folder / "back").string()});
  CHECK(back.status == 0);
  CHECK(is_dcp_folder(folder / "back"));
  CHECK_THAT(test::run({"checkpoint", "convert", (folder / "back").string(), "--out", run}).err,
             Contains("is a folder of PyTorch; give --config FILE"));
}

TEST_CASE("a folder of another model is refused in one line", "[cpu]") {
  const TemporaryDirectory folder;
  const auto refusal = [&](const std::string& key) {
    std::vector<std::string> keys = keys_of("torchtitan");
    keys.push_back(key);
    return error_of([&] {
      import_dcp(kGolden / "torchtitan", find_config("llama3-mini", keys), folder / "run");
    });
  };
  CHECK_THAT(refusal("model.mlp_width=32"),
             Contains("feed_forward.w1.weight has shape [40, 24]; the model of the configuration "
                      "has [32, 24]"));
  CHECK_THAT(refusal("model.layers=3"), Contains("has no tensor layers.2.attention.wq.weight"));
  CHECK_THAT(refusal("model.layers=1"),
             Contains("the model of the configuration has no tensor \"layers.1."));
  CHECK_THAT(refusal("model.preset=gpt2-mini"), Contains("model.kv_heads"));
  CHECK_THAT(refusal("optimizer.name=sgd"),
             Contains("is updated by sgd, but a converted checkpoint has the moments of adamw"));
  CHECK_THAT(refusal("train.ema=0.9"), Contains("a converted checkpoint has no averages"));
  CHECK(!fs::exists(folder / "run/step-000003"));
}

TEST_CASE("a damaged folder of PyTorch is refused with the file and the tensor", "[cpu]") {
  const TemporaryDirectory folder;
  const fs::path dcp = copied(folder, "transformers");
  const auto refusal = [&] {
    return error_of([&] { import_dcp(dcp, config_of("transformers"), folder / "run"); });
  };
  const std::string data = read_text_file(dcp / "__0_0.distcp");
  overwrite(dcp / "__0_0.distcp", data.find("FloatStorage"), "OtherStorage");
  CHECK_THAT(refusal(), Contains("__0_0.distcp: 'model.") || Contains("__0_0.distcp: \"model."));
  overwrite(dcp / "__0_0.distcp", 0, data);
  fs::resize_file(dcp / "__0_0.distcp", 1000);
  CHECK_THAT(refusal(), Contains("__0_0.distcp ends at byte 1000"));
  fs::remove(dcp / "__0_0.distcp");
  CHECK_THAT(refusal(), Contains("__0_0.distcp: No such file"));
  const std::string metadata = read_text_file(dcp / ".metadata");
  fs::resize_file(dcp / ".metadata", 5000);
  CHECK_THAT(refusal(), Contains(".metadata: it ends at byte 5000"));
  std::ofstream(dcp / ".metadata", std::ios::binary) << metadata;
  overwrite(dcp / ".metadata", metadata.find("Metadata"), "Metadatb");
  CHECK_THAT(refusal(), Contains("expected torch.distributed.checkpoint.metadata.Metadata, found"));
}

}  // namespace tessera
