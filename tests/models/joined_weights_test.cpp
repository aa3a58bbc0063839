// q, k and v, and gate and up, are computed as one product wherever a strategy places them.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "kernels/add/op.h"
#include "kernels/scale/op.h"
#include "models/llama/model.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/partition.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/device.h"
#include "tests/support/random_tensor.h"
#include "tests/support/waiting.h"

namespace tessera {
namespace {

/// Qwen2 has biases of q, k and v. Qwen3 has norms of queries and keys. Heads of 6 channels make 6 rows of
/// keys, and as many weights of a norm: 4 ranks do not divide them.
LlamaConfig tiny(LlamaKind kind) {
  LlamaConfig config{.vocab_size = 29,
                     .context = 12,
                     .layers = 2,
                     .heads = 4,
                     .kv_heads = 1,
                     .head_size = 6,
                     .width = 24,
                     .mlp_width = 30,
                     .rope = {.theta = 100.0}};
  config.kind = kind;
  return config;
}

/// A step of plain gradient descent.
void update(const std::vector<Shard>& shards) {
  for (const Shard& shard : shards) {
    if (!shard.gradient.defined() || shard.data.numel() == 0) continue;
    const Tensor step = Tensor::empty(shard.data.shape(), DType::f32);
    scale(step, shard.gradient.reshape(shard.data.shape()), -0.5);
    add(shard.data, shard.data, step);
  }
}

/// Rank 0's losses, of two micro-batches a step.
std::vector<float> losses(LlamaKind kind, int ranks, ShardingOptions options) {
  options.micro_batches = 2;
  std::vector<float> result;
  run_ranks(
      {.ranks = ranks, .device = test::device(), .threads = 1, .deadline = test::kSafetyLimit},
      [&](Communicator& world) {
        Llama model(tiny(kind));
        const auto strategy = make_strategy(model.units(), options, /*seed=*/3, &world);
        const std::string own = std::to_string(world.rank());
        for (int i = 0; i < 3; ++i) {
          Step step = strategy->start_step();
          for (const char* micro_batch : {"first", "second"}) {
            const std::string name = micro_batch + own;
            const Variable loss = model.loss(test::index_tensor({2, 7}, 29, "in" + name),
                                             test::index_tensor({2, 7}, 29, "out" + name),
                                             1.0 / (28.0 * world.size()), /*training=*/true);
            backward(loss);
            step.finish_micro_batch();
            if (world.rank() == 0) result.push_back(loss.data().item<float>());
          }
          step.update([&] { update(strategy->shards()); });
        }
      });
  return result;
}

}  // namespace

TEST_CASE("joined weights: equal bits where they are neighbours and where they are not") {
  const LlamaKind family = GENERATE(LlamaKind::qwen2, LlamaKind::qwen3);
  const std::vector<float> expected = losses(family, 4, {.strategy = StrategyKind::ddp});
  REQUIRE(expected[0] != expected[2]);  // the weights have changed
  for (const StrategyKind kind :
       {StrategyKind::zero1, StrategyKind::zero3, StrategyKind::fsdp, StrategyKind::hsdp}) {
    CAPTURE(name_of(kind));
    CHECK(losses(family, 4, {.strategy = kind}) == expected);
  }
  ShardingOptions flat{.strategy = StrategyKind::fsdp};
  flat.flatten_parameters = true;
  CHECK(losses(family, 4, flat) == expected);
}

TEST_CASE("every layout makes neighbours of weights that are joined") {
  const LlamaKind family = GENERATE(LlamaKind::qwen2, LlamaKind::qwen3);
  LlamaConfig config = tiny(family);
  config.head_size = 16;
  config.mlp_width = 32;
  const Llama model(config);
  const std::vector<Bucket> buckets = make_buckets(model.units());
  std::vector<std::vector<std::string>> joined = {
      {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
      {"mlp.gate_proj.weight", "mlp.up_proj.weight"}};
  if (family == LlamaKind::qwen2) {
    joined.push_back({"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"});
  } else {
    joined.push_back({"self_attn.q_norm.weight", "self_attn.k_norm.weight"});
  }
  for (const Layout layout : {Layout::whole, Layout::tensors, Layout::rows, Layout::flat}) {
    const Partition partition(layout, 8, buckets);
    CAPTURE(name_of(layout));
    const BucketLayout& block = partition.buckets()[1];
    for (const std::vector<std::string>& names : joined) {
      std::int64_t end = -1;
      for (const std::string& name : names) {
        CAPTURE(name);
        for (int p = 0; p < block.parameter_count(); ++p) {
          if (block.parameters[static_cast<std::size_t>(p)].name() != "model.layers.0." + name) {
            continue;
          }
          const Range place = block.place_of(p);
          CHECK((end < 0 || place.first == end));
          end = place.end();
        }
        CHECK(end > 0);
      }
    }
  }
}

}  // namespace tessera
