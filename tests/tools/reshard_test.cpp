// A checkpoint of any strategy and number of ranks, loaded by any other: the same bits.
//
// There are too many pairs for every run of the tests: each variant loads the files of the one before it,
// in shuffled orders. TESSERA_RESHARD_ALL=1 in the environment takes every pair.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <map>

#include "runtime/random.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/failing_files.h"
#include "tests/support/findings.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/waiting.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
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

/// Widths that no number of ranks divides, but for those that tensor ranks share out.
Config small_model(const std::string& preset) {
  Config config;
  config.model = {
      .preset = preset, .layers = 1, .heads = 2, .width = 10, .context = 12, .vocab_size = 37};
  config.data = {.batch_size = 12, .sequence_length = 9};
  if (preset == "gpt2-mini") return config;
  config.model.head_size = 6;
  config.model.kv_heads = 1;
  if (preset == "llama3-mini") {
    config.model.heads = 4;
    config.model.kv_heads = 2;
    config.model.width = 20;
    config.model.mlp_width = 28;
  } else {
    config.model.experts = 12;
    config.model.expert_width = 14;
  }
  if (preset == "llama4-mini") {
    config.model.layers = 2;  // the second has experts
    config.model.mlp_width = 14;
  }
  return config;
}

struct Variant {
  std::string strategy;
  int ranks;
  int shard_size = 0;
  bool flat = false;
  int expert_parallel = 1;
  int tensor_parallel = 1;
  int stages = 1;

  std::string name() const {
    return strategy + "-" + std::to_string(ranks) + (flat ? "-flat" : "") +
           (expert_parallel > 1 ? "-experts-" + std::to_string(expert_parallel) : "") +
           (tensor_parallel > 1 ? "-tensor-" + std::to_string(tensor_parallel) : "") +
           (stages > 1 ? "-stages-" + std::to_string(stages) : "");
  }
};

/// Ranks that share out rows of a batch, or layers.
std::vector<Variant> plain_variants() {
  std::vector<Variant> variants = {{"single", 1}};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat"}) {
      variants.push_back({strategy, ranks});
    }
    variants.push_back({"hsdp", ranks, ranks % 2 == 0 ? ranks / 2 : ranks});
    variants.push_back({"hsdp", ranks, 1, /*flat=*/true});
  }
  variants.push_back({.strategy = "ddp", .ranks = 2, .stages = 2});
  variants.push_back({.strategy = "zero1", .ranks = 3, .stages = 3});
  variants.push_back({.strategy = "fsdp", .ranks = 4, .stages = 2});
  return variants;
}

/// Ranks that share out heads and channels. Two ranks of GPT-2 have a head each.
std::vector<Variant> tensor_variants() {
  std::vector<Variant> variants;
  for (const char* strategy : {"ddp", "zero1", "zero3", "fsdp", "fsdp_flat"}) {
    for (const int ranks : {2, 4}) {
      variants.push_back({.strategy = strategy, .ranks = ranks, .tensor_parallel = 2});
    }
  }
  variants.push_back({.strategy = "hsdp", .ranks = 4, .shard_size = 1, .tensor_parallel = 2});
  return variants;
}

/// Four ranks have two heads of keys.
std::vector<Variant> shared_head_variants() {
  std::vector<Variant> variants = {{"single", 1}, {"zero3", 3}, {"fsdp_flat", 2}};
  for (const char* strategy : {"ddp", "zero3", "fsdp_flat"}) {
    variants.push_back({.strategy = strategy, .ranks = 4, .tensor_parallel = 4});
  }
  variants.push_back({.strategy = "fsdp", .ranks = 8, .tensor_parallel = 4});
  variants.push_back({.strategy = "zero1", .ranks = 8, .tensor_parallel = 4, .stages = 2});
  variants.push_back({.strategy = "fsdp", .ranks = 4, .tensor_parallel = 2});
  return variants;
}

/// Ranks that share out experts, whole.
std::vector<Variant> expert_variants() {
  std::vector<Variant> variants;
  variants.push_back({.strategy = "zero3", .ranks = 4, .expert_parallel = 2, .stages = 2});
  for (const char* strategy : {"ddp", "zero1", "zero3", "fsdp"}) {
    for (const int ranks : {2, 3, 4}) {
      variants.push_back({.strategy = strategy, .ranks = ranks, .expert_parallel = ranks});
    }
    variants.push_back({.strategy = strategy, .ranks = 4, .expert_parallel = 2});
  }
  variants.push_back({.strategy = "hsdp", .ranks = 4, .shard_size = 2, .expert_parallel = 2});
  return variants;
}

/// Ranks that share out the channels inside experts, and a head of keys, next to ranks that share out experts.
std::vector<Variant> divided_expert_variants() {
  std::vector<Variant> variants = {{"single", 1}, {"fsdp", 3}};
  for (const char* strategy : {"ddp", "zero3", "fsdp_flat"}) {
    variants.push_back(
        {.strategy = strategy, .ranks = 4, .expert_parallel = 2, .tensor_parallel = 2});
  }
  variants.push_back({.strategy = "fsdp", .ranks = 2, .tensor_parallel = 2});
  variants.push_back({.strategy = "ddp", .ranks = 6, .expert_parallel = 3, .tensor_parallel = 2});
  variants.push_back(
      {.strategy = "fsdp", .ranks = 8, .expert_parallel = 2, .tensor_parallel = 2, .stages = 2});
  variants.push_back({.strategy = "hsdp",
                      .ranks = 8,
                      .shard_size = 2,
                      .expert_parallel = 2,
                      .tensor_parallel = 2});
  return variants;
}

std::vector<Variant> joined(std::vector<Variant> variants, const std::vector<Variant>& more) {
  variants.insert(variants.end(), more.begin(), more.end());
  return variants;
}

/// body(session, world) on every rank of a variant.
template <typename Body>
void with_sessions(const Config& base, const Variant& variant, const Body& body) {
  Config config = variant.strategy == "single" ? base : variant_of(base, variant.strategy);
  config.sharding.expert_parallel = variant.expert_parallel;
  config.sharding.tensor_parallel = variant.tensor_parallel;
  config.sharding.shard_size = variant.shard_size;
  config.sharding.pipeline_parallel = variant.stages;
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
  if (world.rank() == 0) texts.state = run_state_text(session, position, {}, 1, "");
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

/// Pairs of numbers below `count`, source and target: all, or such that each is both once.
std::vector<std::pair<std::size_t, std::size_t>> pairs_of(std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  if (std::getenv("TESSERA_RESHARD_ALL") != nullptr) {
    for (std::size_t i = 0; i < count * count; ++i) pairs.emplace_back(i / count, i % count);
    return pairs;
  }
  const RandomPermutation order(RandomStream(1, "reshard"), count);
  for (std::uint64_t i = 0; i < count; ++i) pairs.emplace_back(order(i), order((i + 1) % count));
  return pairs;
}

void check_reshards(
    const std::string& preset, const std::vector<Variant>& variants,
    const std::function<void(Config&)>& vary = [](Config&) {}) {
  const TemporaryDirectory folder;
  Config base = small_model(preset);
  vary(base);
  FailingFiles calls;  // of which none fails
  Findings findings;
  const auto save_to = [&](const std::string& name, TrainingSession& session,
                           const RunPosition& position, Communicator& world) {
    const TrainConfig to = {.dir = folder / name};
    if (world.rank() == 0) fs::create_directories(to.dir);
    gather_numbers({0}, world);
    save(session, position, to, world, calls);
  };
  const auto saved_by = [&](const std::string& name) { return checkpoint_path(folder / name, 2); };
  const auto move = [&](const fs::path& source, const Variant& target, const std::string& name) {
    with_sessions(base, target, [&](TrainingSession& session, Communicator& world) {
      const Restored restored = restore(session, source);
      findings.expect(restored.problem.empty(), restored.problem);
      findings.expect(restored.position.batches == 5, "the data position");
      save_to(name, session, restored.position, world);
    });
  };
  with_sessions(base, {"fsdp", 3}, [&](TrainingSession& session, Communicator& world) {
    const BatchSource batches = random_tokens(base.data, base.model.vocab_size);
    for (std::int64_t step = 1; step <= 2; ++step) session.step(step, batches);
    save_to("trained", session, {.step = 2, .batches = 5}, world);
  });
  const Contents expected = contents_of(saved_by("trained"));
  findings.expect(expected.tensors.size() % 3 == 0 && expected.tensors.size() > 9,
                  "a weight and two moments of each parameter");
  for (const Variant& variant : variants) {
    move(saved_by("trained"), variant, variant.name());
    findings.expect(contents_of(saved_by(variant.name())) == expected, variant.name());
  }
  for (const auto& [from, to] : pairs_of(variants.size())) {
    move(saved_by(variants[from].name()), variants[to], "again");
    findings.expect(contents_of(saved_by("again")) == expected,
                    variants[from].name() + " loaded by " + variants[to].name());
    fs::remove_all(folder / "again");
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

}  // namespace

TEST_CASE("gpt2: weights and moments have the same bits after any change of strategy and ranks",
          "[cpu]") {
  check_reshards("gpt2-mini", joined(plain_variants(), tensor_variants()));
}

TEST_CASE(
    "qwen3-moe: weights and moments have the same bits after any change of strategy and ranks",
    "[cpu]") {
  check_reshards("qwen3-moe-mini", joined(plain_variants(), expert_variants()));
}

TEST_CASE("heads of keys that ranks share have the same bits after any change of ranks", "[cpu]") {
  check_reshards("llama3-mini", shared_head_variants(), [](Config& config) {
    config.data.sequence_length = 8;
    config.sharding.grid = 4;  // copies of heads, and rows of padding
  });
}

TEST_CASE("experts of which ranks share out channels have the same bits after any change of ranks",
          "[cpu]") {
  for (const char* preset : {"qwen3-moe-mini", "llama4-mini"}) {
    check_reshards(preset, divided_expert_variants());
  }
}

TEST_CASE("bf16 masters and moments, and f16's loss scale, have the same bits after any change",
          "[cpu]") {
  check_reshards("gpt2-mini", joined(plain_variants(), tensor_variants()), [](Config& config) {
    config.runtime.compute_dtype = DType::f16;
    config.optimizer.master_dtype = DType::bf16;
    config.optimizer.state_dtype = DType::bf16;
  });
}

TEST_CASE("a checkpoint holds the values of its step while training goes on") {
  const TemporaryDirectory folder;
  const Config base = small_model("gpt2-mini");
  class Files : public FileCalls {
   public:
    int sync(int) override { return 0; }
  };
  /// Writes when training is far ahead, on both ranks.
  class LateFiles final : public Files {
   public:
    int create(const char* path) override {
      test::wait_for("training is ahead", [&] { return ahead == 2; });
      return FileCalls::create(path);
    }
    std::atomic<int> ahead = 0;
  };
  Files calls;
  LateFiles late_calls;
  const TrainConfig sync = {.dir = folder / "sync"}, async = {.dir = folder / "async"};
  fs::create_directory(sync.dir);
  fs::create_directory(async.dir);
  with_sessions(base, {"fsdp", 2}, [&](TrainingSession& session, Communicator& world) {
    const BatchSource batches = random_tokens(base.data, base.model.vocab_size);
    session.step(1, batches);
    save(session, {.step = 1, .batches = 1}, sync, world, calls);
    Checkpointer checkpointer(
        async, world, [](std::string_view) {}, late_calls);
    CheckpointTexts texts;
    if (world.rank() == 0) texts.state = run_state_text(session, {1, 1}, {}, 1, "");
    checkpointer.save(1, true, tensors_to_save(session), texts);
    for (std::int64_t step = 2; step <= 6; ++step) {
      session.step(step, batches);
      checkpointer.poll();
    }
    ++late_calls.ahead;
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
        if (world.rank() == 0) texts.state = run_state_text(session, {2, 2}, {}, 1, "");
        checkpointer.save(2, true, tensors_to_save(session), texts);
        const std::string problem = checkpointer.finish();
        if (world.rank() == 0) {
          const std::vector<CheckpointFolder> left = checkpoints_in(config.dir);
          findings.expect(!left.empty(), "nothing left");
          for (const CheckpointFolder& checkpoint : left) {
            findings.expect(CheckpointReader(checkpoint.path).problems().empty(), "damage");
          }
          const bool has_new = !left.empty() && left.back().step == 2;
          // The new name stays if only its flush to the disk fails.
          const bool unflushed = log.find("cannot flush folder") != std::string::npos;
          findings.expect(problem.empty() == has_new || unflushed, "the outcome: " + log);
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
