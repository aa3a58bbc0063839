// A checkpoint of any strategy and number of ranks, loaded by any other: the same bits.
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <thread>

#include "sharding/checkpoint/folder.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/failing_files.h"
#include "tests/support/findings.h"
#include "tests/support/temporary_directory.h"
#include "tools/bench/workload.h"
#include "tools/config/sharding_options.h"
#include "tools/train/checkpointer.h"
#include "tools/train/gather.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::FailingFiles;
using test::Findings;
using test::TemporaryDirectory;
using Bytes = std::vector<std::byte>;

/// Widths that no number of ranks divides.
Config small_model(const std::string& preset) {
  Config config;
  config.model = {
      .preset = preset, .layers = 1, .heads = 2, .width = 10, .context = 12, .vocab_size = 37};
  if (preset != "gpt2-mini") {
    config.model.head_size = 6;
    config.model.experts = 5;
    config.model.expert_width = 7;
  }
  config.data = {.batch_size = 12, .sequence_length = 9};
  return config;
}

struct Variant {
  std::string strategy;
  int ranks;
  int shard_size = 0;
  bool flat = false;

  std::string name() const {
    return strategy + "-" + std::to_string(ranks) + (flat ? "-flat" : "");
  }
};

std::vector<Variant> all_variants() {
  std::vector<Variant> variants = {{"ddp", 1}};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat"}) {
      variants.push_back({strategy, ranks});
    }
    variants.push_back({"hsdp", ranks, ranks % 2 == 0 ? ranks / 2 : ranks});
    variants.push_back({"hsdp", ranks, 1, /*flat=*/true});
  }
  return variants;
}

/// body(session, world) on every rank of a variant.
template <typename Body>
void with_sessions(const Config& base, const Variant& variant, const Body& body) {
  Config config = variant_of(base, variant.strategy);
  config.sharding.shard_size = variant.shard_size;
  if (variant.flat) config.sharding.flatten_parameters = true;
  const ResolvedConfig run = resolve(config);
  run_ranks({.ranks = variant.ranks, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(run, world);
    body(session, world);
  });
}

/// Saves the session's state as step `step` of config.train.dir.
void save(TrainingSession& session, const RunPosition& position, const TrainConfig& config,
          Communicator& world, FileCalls& calls) {
  Checkpointer checkpointer(
      config, world, [](std::string_view) {}, calls);
  CheckpointTexts texts;
  if (world.rank() == 0) texts.state = run_state_text(session, position, {}, 1);
  checkpointer.save(position.step, true, tensors_to_save(session), texts);
  const std::string problem = checkpointer.finish();
  if (!problem.empty()) throw Error(problem);
}

/// Every tensor of a checkpoint, and its state.
struct Contents {
  std::map<std::string, Bytes> tensors;
  std::string state;
  bool operator==(const Contents&) const = default;
};

Contents contents_of(const fs::path& checkpoint) {
  CheckpointReader reader(checkpoint);
  Contents contents = {.state = reader.manifest().state};
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    Bytes bytes(static_cast<std::size_t>(tensor.shape.numel()) * size_of(tensor.dtype));
    reader.read(name, 0, bytes);
    contents.tensors.emplace(name, std::move(bytes));
  }
  return contents;
}

void check_reshards(const std::string& preset) {
  const TemporaryDirectory folder;
  const Config base = small_model(preset);
  FailingFiles calls;  // of which none fails
  Findings findings;
  const std::vector<Variant> sources = {
      {"ddp", 1}, {"fsdp", 3}, {"zero3", 2}, {"hsdp", 4, 2}, {"zero1", 3}};
  for (const Variant& source : sources) {
    TrainConfig from = {.dir = folder / source.name()};
    fs::create_directory(from.dir);
    with_sessions(base, source, [&](TrainingSession& session, Communicator& world) {
      const BatchSource batches = random_tokens(base.data, base.model.vocab_size);
      for (std::int64_t step = 1; step <= 2; ++step) session.step(step, batches);
      save(session, {.step = 2, .batches = 5}, from, world, calls);
    });
    const fs::path saved = checkpoint_path(from.dir, 2);
    const Contents expected = contents_of(saved);
    findings.expect(expected.tensors.size() % 3 == 0 && expected.tensors.size() > 9,
                    "a weight and two moments of each parameter");
    for (const Variant& target : all_variants()) {
      TrainConfig to = {.dir = folder / (source.name() + "-" + target.name())};
      fs::create_directory(to.dir);
      with_sessions(base, target, [&](TrainingSession& session, Communicator& world) {
        const Restored restored = restore(session, saved);
        findings.expect(restored.problem.empty(), restored.problem);
        findings.expect(restored.position.batches == 5, "the data position");
        save(session, restored.position, to, world, calls);
      });
      findings.expect(contents_of(checkpoint_path(to.dir, 2)) == expected,
                      source.name() + " loaded by " + target.name());
    }
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

}  // namespace

TEST_CASE("gpt2: weights and moments have the same bits after any change of strategy and ranks",
          "[cpu]") {
  check_reshards("gpt2-mini");
}

TEST_CASE(
    "qwen3-moe: weights and moments have the same bits after any change of strategy and ranks",
    "[cpu]") {
  check_reshards("qwen3-moe-mini");
}

TEST_CASE("offloaded masters and f16's loss scale are saved and loaded like others") {
  const TemporaryDirectory folder;
  Config base = small_model("gpt2-mini");
  base.sharding.offload = Offload::all;
  base.runtime.compute_dtype = DType::f16;
  FailingFiles calls;
  Findings findings;
  const TrainConfig from = {.dir = folder / "from"}, to = {.dir = folder / "to"};
  fs::create_directory(from.dir);
  fs::create_directory(to.dir);
  with_sessions(base, {"fsdp", 2}, [&](TrainingSession& session, Communicator& world) {
    for (std::int64_t step = 1; step <= 2; ++step)
      session.step(step, random_tokens(base.data, base.model.vocab_size));
    save(session, {.step = 2, .batches = 2}, from, world, calls);
  });
  with_sessions(base, {"zero3", 3}, [&](TrainingSession& session, Communicator& world) {
    const Restored restored = restore(session, checkpoint_path(from.dir, 2));
    findings.expect(restored.problem.empty(), restored.problem);
    save(session, restored.position, to, world, calls);
  });
  CHECK(findings.wrong() == std::vector<std::string>{});
  CHECK(contents_of(checkpoint_path(from.dir, 2)) == contents_of(checkpoint_path(to.dir, 2)));
}

TEST_CASE("a checkpoint holds the values of its step while training goes on") {
  const TemporaryDirectory folder;
  const Config base = small_model("gpt2-mini");
  /// Writes when training is far ahead.
  class SlowFiles final : public FileCalls {
   public:
    int create(const char* path) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return FileCalls::create(path);
    }
    int sync(int) override { return 0; }
  };
  SlowFiles calls;
  const TrainConfig sync = {.dir = folder / "sync"}, async = {.dir = folder / "async"};
  fs::create_directory(sync.dir);
  fs::create_directory(async.dir);
  with_sessions(base, {"fsdp", 2}, [&](TrainingSession& session, Communicator& world) {
    const BatchSource batches = random_tokens(base.data, base.model.vocab_size);
    session.step(1, batches);
    save(session, {.step = 1, .batches = 1}, sync, world, calls);
    Checkpointer checkpointer(
        async, world, [](std::string_view) {}, calls);
    CheckpointTexts texts;
    if (world.rank() == 0) texts.state = run_state_text(session, {1, 1}, {}, 1);
    checkpointer.save(1, true, tensors_to_save(session), texts);
    for (std::int64_t step = 2; step <= 6; ++step) {
      session.step(step, batches);
      checkpointer.poll();
    }
    checkpointer.finish();
  });
  CHECK(contents_of(checkpoint_path(sync.dir, 1)) == contents_of(checkpoint_path(async.dir, 1)));
}

TEST_CASE("a failing call at any place leaves a checkpoint that loads, and training goes on",
          "[cpu]") {
  const TemporaryDirectory folder;
  const Config base = small_model("gpt2-mini");
  Findings findings;
  with_sessions(base, {"fsdp", 2}, [&](TrainingSession& session, Communicator& world) {
    FailingFiles good;
    session.step(1, random_tokens(base.data, base.model.vocab_size));
    // The ranks' calls are counted apart, so each rank's calls fail in turn.
    for (int failing = 0; failing < world.size(); ++failing) {
      for (std::int64_t call = 0; call < 24; ++call) {
        const TrainConfig config = {.dir = folder / fmt::format("{}-{}", failing, call),
                                    .keep_last = 1};
        if (world.rank() == 0) fs::create_directory(config.dir);
        gather_numbers({0}, world);
        save(session, {.step = 1, .batches = 1}, config, world, good);
        FailingFiles calls(world.rank() == failing ? call : -1, FailingFiles::Fault::from_now,
                           ENOSPC);
        std::string log;
        Checkpointer checkpointer(
            config, world, [&](std::string_view line) { log += std::string(line) + "\n"; }, calls);
        CheckpointTexts texts;
        if (world.rank() == 0) texts.state = run_state_text(session, {2, 2}, {}, 1);
        checkpointer.save(2, true, tensors_to_save(session), texts);
        const std::string problem = checkpointer.finish();
        if (world.rank() == 0) {
          const std::vector<CheckpointFolder> left = checkpoints_in(config.dir);
          findings.expect(!left.empty(), "nothing left");
          for (const CheckpointFolder& checkpoint : left) {
            findings.expect(CheckpointReader(checkpoint.path).problems().empty(), "damage");
          }
          const bool has_new = !left.empty() && left.back().step == 2;
          findings.expect(problem.empty() == has_new, "the outcome: " + log);
          findings.expect(has_new || log.find("warning: no checkpoint of step 2: ") == 0, log);
          findings.expect(has_new || log.find("No space left") != std::string::npos, log);
        }
        gather_numbers({0}, world);
      }
    }
  });
  CHECK(findings.wrong() == std::vector<std::string>{});
}

}  // namespace tessera
