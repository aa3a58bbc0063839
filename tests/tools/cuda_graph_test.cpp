// runtime.graph: steps that are launches of a CUDA graph have the bits of steps that are queued.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <functional>

#include "runtime/context.h"
#include "runtime/device.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/comm/threads/threads.h"
#include "tests/tools/teachers.h"
#include "tests/tools/tiny_run.h"
#include "tools/measure/workload.h"
#include "tools/plan/dry_run.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"
#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/emulated_device.h"
#endif

namespace tessera {

using Catch::Contains;
using test::metrics_of;
using test::model_bytes;
using test::TemporaryDirectory;

namespace {

constexpr int kSteps = 6;

/// Two micro-batches a step, and learning rates that differ from step to step.
Config short_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.model.context = config.data.sequence_length = 8;
  config.data.batch_size = 4;
  config.data.accumulation_steps = 2;
  config.optimizer.warmup_steps = 2;
  config.optimizer.clip_norm = 0.5;
  config.train.steps = kSteps;
  config.train.eval_every = 3;
  config.train.eval_batches = 1;
  config.train.dir = folder / "run";
  config.runtime.device = Device{DeviceType::cuda, 0};
  config.runtime.threads = 1;
  return config;
}

/// The numbers of every step, in all their digits, and the peaks of memory. A graph has its inputs in
/// `other` and its norm in the workspace; the other categories are the same.
std::vector<std::string> results_of(const Config& config) {
  train(config);
  std::vector<std::string> results;
  for (const auto& line : metrics_of(config.train.dir)) {
    std::string text;
    for (const char* key :
         {"loss", "gradient_norm", "learning_rate", "val_loss", "expert_load", "router_loss"}) {
      if (line.contains(key)) text += std::string(key) + " " + line[key].dump() + " ";
    }
    for (const char* part :
         {"parameters", "gradients", "optimizer", "activations", "communication"}) {
      text += std::string(part) + " " + line["peak_bytes"][part].dump() + " ";
    }
    // A step after an evaluation finds parameters that it gathered. A launch gathers them itself.
    const bool after_evaluation = !results.empty() && results.back().find("val_loss") != text.npos;
    if (!after_evaluation) text += "bytes_sent " + line["bytes_sent"].dump();
    results.push_back(text);
  }
  CHECK(results.size() == static_cast<std::size_t>(config.train.steps));
  return results;
}

/// Runs with and without a graph, whose kernels begin early.
void check_same_bits(const std::function<void(Config&)>& change) {
  const TemporaryDirectory folder;
  Config config = short_run(folder);
  change(config);
  config.train.dir = folder / "queued";
  const std::vector<std::string> expected = results_of(config);
  const std::string model = model_bytes(config.train.dir);
  config.runtime.graph = config.kernels.early_launch = true;
  config.train.dir = folder / "graph";
  CHECK(results_of(config) == expected);
  CHECK((model_bytes(config.train.dir) == model));
}

#if defined(TESSERA_EMULATED)
/// Emulated GPUs for the scope.
emulation::DeviceOptions with_gpus(int count) {
  emulation::DeviceOptions options = emulation::device_options();
  options.devices = count;
  return options;
}
#endif

}  // namespace

TEST_CASE("graph: GPT-2 with dropout has the bits of queued steps") {
  check_same_bits([](Config& config) { config.model.dropout = 0.2; });
}

TEST_CASE(
    "graph: Llama in bf16, with bf16 masters that are rounded at random, and bf16 gradients") {
  check_same_bits([](Config& config) {
    config.model = test::tiny_model("llama3-mini", 8);
    config.runtime.compute_dtype = DType::bf16;
    config.optimizer.master_dtype = config.optimizer.state_dtype = DType::bf16;
    config.optimizer.gradient_dtype = DType::bf16;
    config.data.accumulation_steps = 1;
  });
}

TEST_CASE("graph: weights that the update writes in 8 bits have the scales of the launch's step") {
  check_same_bits([](Config& config) {
    config.model = test::tiny_model("llama3-mini", 8);
    config.runtime.compute_dtype = ComputeDtype::eight_bits();
    config.data.accumulation_steps = 1;
  });
}

TEST_CASE("graph: a mixture of experts moves its biases between the launches") {
  check_same_bits([](Config& config) {
    config.model = test::tiny_model("qwen3-moe-mini", 8);
    config.moe = {.balance = Balance::bias, .bias_rate = 0.01, .z_loss = 1e-3};
  });
}

TEST_CASE("graph: every group of the optimizer has its learning rate") {
  check_same_bits([](Config& config) {
    config.optimizer.groups = {
        {.match = "matrices", .keys = {{"name", "sgd"}, {"momentum", "0.9"}}},
        {.match = "tables", .keys = {{"learning_rate_factor", "0.5"}, {"warmup_steps", "0"}}}};
  });
}

TEST_CASE("graph: momentum begins at the first update") {
  check_same_bits([](Config& config) {
    config.optimizer.name = OptimizerKind::sgd;
    config.optimizer.momentum = 0.9;
    config.optimizer.nesterov = true;
  });
}

TEST_CASE("graph: a teacher's tokens are those of the launch's batch") {
  const TemporaryDirectory teachers;
  check_same_bits([&](Config& config) {
    const std::filesystem::path tokens = teachers / "train.bin";
    std::filesystem::copy_file(config.data.train.first(), tokens);
    test::write_teacher(tokens, 2, 11, test::answers_of_token);
    config.data.train = tokens;
    config.train.objective = Objective::distill;
    config.distill.top_k = 2;
  });
}

namespace {

/// The losses and norms of six steps in f16, and the masters. Before the fourth step the final norm
/// becomes so large that gradients overflow at the first loss scales.
std::string f16_run(const TemporaryDirectory& folder, bool graph, int& skipped) {
  Config config = short_run(folder);
  config.runtime.compute_dtype = DType::f16;
  config.optimizer.state_dtype = DType::bf16;  // rounded at random, by the number of the update
  config.runtime.graph = graph;
  config.optimizer.learning_rate = 1e-3;
  const ResolvedConfig run = resolve(config);
  std::string results;
  run_ranks({.ranks = 1, .device = config.runtime.device.value()}, [&](Communicator& world) {
    TrainingSession session(run, world);
    const auto source = random_tokens(run.config.data, shape_of(run.model).vocab_size);
    for (int step = 1; step <= 8; ++step) {
      if (step == 4) {
        session.strategy().write_masters([&] {
          for (const Shard& shard : session.strategy().shards()) {
            if (shard.parameter.name() != "transformer.ln_f.weight") continue;
            shard.data.copy_from(Tensor::full(shard.data.shape(), DType::f32, 60.0));
          }
        });
      }
      const StepResult result = session.step(step, source);
      if (step >= 4 && !result.finite) ++skipped;
      results +=
          fmt::format("{} {} {}\n", result.loss, result.gradient_norm, session.scaler()->scale());
    }
    for (const Shard& shard : session.strategy().shards()) {
      for (const float x : shard.data.to_vector<float>()) results += fmt::format("{} ", x);
    }
  });
  return results;
}

}  // namespace

TEST_CASE("graph: f16 skips steps, and goes on with another loss scale") {
  const TemporaryDirectory folder;
  int skipped_queued = 0, skipped = 0;
  const std::string expected = f16_run(folder, false, skipped_queued);
  CHECK(f16_run(folder, true, skipped) == expected);
  CHECK(skipped == skipped_queued);
  CHECK(skipped > 0);
  CHECK(skipped < 5);
}

TEST_CASE("graph: a run that continues has the bits of a run that did not stop") {
  const TemporaryDirectory folder;
  Config config = short_run(folder);
  config.model.dropout = 0.2;
  config.runtime.graph = true;
  config.train.checkpoint_every = 3;
  const std::vector<std::string> expected = results_of(config);
  const std::string model = model_bytes(config.train.dir);
  std::filesystem::remove_all(config.train.dir / "model");
  for (const CheckpointFolder& checkpoint : checkpoints_in(config.train.dir)) {
    if (checkpoint.step > 3) std::filesystem::remove_all(checkpoint.path);
  }
  CHECK(results_of(config) == expected);
  CHECK((model_bytes(config.train.dir) == model));
}

TEST_CASE("graph: a launch has the accounts of memory that a dry run predicts") {
  const TemporaryDirectory folder;
  Config config = short_run(folder);
  config.runtime.graph = true;
  const ResolvedConfig run = resolve(config);
  const auto text_of = [](const MemoryAccount& account) {
    std::string text = fmt::format("{}", account.total.peak);
    for (const MemoryAccount::Line& line : account.categories) {
      text += fmt::format(" {}/{}", line.at_peak, line.peak);
    }
    return text;
  };
  const Device device = config.runtime.device.value();
  run_ranks({.ranks = 1, .device = device, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(run, world);
    const auto source = random_tokens(run.config.data, shape_of(run.model).vocab_size);
    for (int step = 1; step <= 3; ++step) {
      context().compute_stream().synchronize();
      context().allocator().reset_peaks();
      session.step(step, source);
      CHECK((session.graph_nodes() > 0) == (step > 1));
    }
    const MemoryAccount measured = context().allocator().account();
    const StepMemory dry = dry_run(run, {.ranks = 1, .device = device, .threads = 1});
    CHECK(text_of(measured) == text_of(dry.account));
    // No memory of the first step is kept next to the graph's.
    CHECK(static_cast<double>(measured.reserved) <
          1.1 * static_cast<double>(dry.account.total.peak));
  });
}

#if defined(TESSERA_EMULATED)
TEST_CASE("graph: two ranks of NCCL have the bits of queued steps") {
  const emulation::DeviceOptionsGuard gpus(with_gpus(2));
  const StrategyKind strategy =
      GENERATE(StrategyKind::ddp, StrategyKind::zero3, StrategyKind::fsdp);
  const bool windows = GENERATE(false, true);
  CAPTURE(name_of(strategy), windows);
  check_same_bits([&](Config& config) {
    config.model.dropout = 0.2;
    config.runtime.ranks = 2;
    config.sharding.strategy = strategy;
    config.sharding.communicator = CommunicatorKind::nccl;
    config.sharding.deterministic = config.sharding.nccl_windows = windows;
  });
}

namespace {

/// Two data ranks under fsdp, of so many tensor or context ranks each.
void share_out(Config& config, std::int64_t tensor_ranks, std::int64_t context_ranks) {
  config.runtime.ranks = static_cast<int>(2 * tensor_ranks * context_ranks);
  config.sharding.strategy = StrategyKind::fsdp;
  config.sharding.tensor_parallel = tensor_ranks;
  config.sharding.context_parallel = context_ranks;
  config.sharding.communicator = CommunicatorKind::nccl;
}

}  // namespace

TEST_CASE("graph: tensor ranks have the bits of queued steps") {
  const emulation::DeviceOptionsGuard gpus(with_gpus(4));
  const char* const preset = GENERATE("gpt2-mini", "llama3-mini", "qwen3-moe-mini");
  CAPTURE(preset);
  check_same_bits([&](Config& config) {
    config.model = test::tiny_model(preset, 8);
    if (config.model.preset == "gpt2-mini") config.model.dropout = 0.2;
    if (config.model.preset == "llama3-mini") config.sharding.grid = 2;
    share_out(config, 2, 1);
  });
}

TEST_CASE("graph: context ranks have the bits of queued steps") {
  const emulation::DeviceOptionsGuard gpus(with_gpus(4));
  const KeyExchange exchange = GENERATE(KeyExchange::gather, KeyExchange::heads);
  check_same_bits([&](Config& config) {
    config.model.dropout = 0.2;
    config.sharding.grid = exchange == KeyExchange::gather ? 2 : 0;
    config.sharding.context_exchange = exchange;
    share_out(config, 1, 2);
  });
}

TEST_CASE("graph: stages of a pipeline are refused, with the remedy") {
  const emulation::DeviceOptionsGuard gpus(with_gpus(2));
  const TemporaryDirectory folder;
  Config config = short_run(folder);
  config.runtime.graph = true;
  config.runtime.ranks = config.sharding.pipeline_parallel = 2;
  config.sharding.strategy = StrategyKind::ddp;
  config.sharding.communicator = CommunicatorKind::nccl;
  CHECK_THROWS_WITH(train(config), Contains("set sharding.pipeline_parallel=1"));
}
#endif

TEST_CASE("graph: a step that the host takes part in is refused, with the remedy") {
  const TemporaryDirectory folder;
  Config config = short_run(folder);
  config.runtime.graph = true;
  SECTION("the CPU") {
    config.runtime.device = Device{};
    CHECK_THROWS_WITH(train(config), Contains("needs a GPU; set runtime.graph=false"));
  }
  SECTION("ranks that are threads") {
    config.runtime.ranks = 2;
    config.sharding.strategy = StrategyKind::ddp;
    config.sharding.communicator = CommunicatorKind::threads;
    CHECK_THROWS_WITH(train(config), Contains("set sharding.communicator=nccl"));
  }
  SECTION("an offloaded optimizer") {
    config.sharding.offload = Offload::optimizer;
    CHECK_THROWS_WITH(train(config), Contains("set sharding.offload=none"));
  }
  SECTION("a profile") {
    config.train.profile = {2, 3};
    CHECK_THROWS_WITH(train(config), Contains("leave train.profile out"));
  }
  SECTION("packed documents") {
    config.data.document_token = " ";
    CHECK_THROWS_WITH(train(config), Contains("leave data.document_token out"));
  }
  SECTION("a chunk of keys, which is known only when the step is captured") {
    config.model = test::tiny_model("llama4-mini", 8);
    config.model.layers = config.model.experts = 4;
    config.model.attention_chunk = 3;
    CHECK_THROWS_WITH(train(config), Contains("reads the device's values on the host"));
  }
}

}  // namespace tessera
