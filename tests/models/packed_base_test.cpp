// Adapters on a base of 4 bits: which weights are packed, and the same bits wherever they are held.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/add/op.h"
#include "kernels/nf4/op.h"
#include "kernels/nf4/pack.h"
#include "kernels/scale/op.h"
#include "models/adapters.h"
#include "runtime/context.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/footprint.h"
#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/findings.h"
#include "tests/support/rank.h"
#include "tests/support/waiting.h"

namespace tessera {
namespace {

using Weights = std::map<std::string, std::vector<float>>;
using test::Findings;
using test::golden_folder;

constexpr int kRows = 4;
const AdapterOptions kPacked = {.rank = 2, .base = AdapterBase::nf4};

bool is_factor(const std::string& name) {
  return name.find(".lora_") != name.npos;
}

/// Two expert ranks divide the experts, if there are any.
Hyperparameters sizes_of(const std::string& preset) {
  Hyperparameters sizes = test::tiny(preset);
  std::visit(
      [](auto& config) {
        if constexpr (requires { config.experts; }) config.experts = 6;
      },
      sizes);
  return sizes;
}

std::unique_ptr<LanguageModel> with_adapters(std::unique_ptr<LanguageModel> model,
                                             const AdapterOptions& options) {
  add_adapters(*model, options);
  return model;
}

/// The whole parameters in f32. A collective.
Weights weights_of(Strategy& strategy) {
  Weights weights;
  strategy.visit_whole([&](const Parameter& parameter, const Tensor& whole) {
    weights[parameter.name()] = whole.to_vector<float>();
  });
  return weights;
}

/// A step of plain gradient descent. B is no longer 0 after one.
void update(const std::vector<Shard>& shards) {
  for (const Shard& shard : shards) {
    if (!shard.gradient.defined() || shard.data.numel() == 0) continue;
    const Tensor step = Tensor::empty(shard.data.shape(), DType::f32);
    scale(step, shard.gradient.reshape(shard.data.shape()), -0.5);
    add(shard.data, shard.data, step);
  }
}

void expect_bytes(const Strategy& strategy, int rank, Findings& findings) {
  const Footprint planned = footprint_of(strategy.plan(), rank, 0);
  const MemoryAccount account = context().allocator().account();
  const auto held = [&](Category category) { return account[category].current; };
  findings.expect(held(Category::parameters) == planned.parameters,
                  fmt::format("parameters: {} bytes, planned {}", held(Category::parameters),
                              planned.parameters));
  findings.expect(held(Category::communication) == planned.communication,
                  fmt::format("slots: {} bytes, planned {}", held(Category::communication),
                              planned.communication));
}

/// The weights after two steps of four rows on these ranks. `start`: the base's values; null: random ones.
Weights trained(const std::string& preset, const AdapterOptions& adapter, int ranks,
                ShardingOptions options, const Weights* start = nullptr) {
  options.elastic = true;
  options.micro_batches = kRows / ranks;
  Weights result;
  Findings findings;
  run_ranks({.ranks = ranks, .threads = 1, .deadline = test::kSafetyLimit},
            [&](Communicator& world) {
              const auto model = with_adapters(make_model(sizes_of(preset)), adapter);
              const auto strategy = make_strategy(model->units(), options, /*seed=*/3, &world);
              if (start != nullptr) {
                strategy->write_masters([&] {
                  for (const Shard& shard : strategy->shards()) {
                    const std::string& name = shard.parameter.name();
                    if (!is_factor(name))
                      shard.data.copy_from(Tensor::from(start->at(name), shard.data.shape()));
                  }
                });
              }
              for (int i = 0; i < 2; ++i) {
                Step step = strategy->start_step();
                for (int micro_batch = 0; micro_batch < options.micro_batches; ++micro_batch) {
                  const std::string row = std::to_string(micro_batch * ranks + world.rank());
                  const Tensor inputs = test::index_tensor({1, 8}, test::kVocabulary, "in" + row);
                  const Tensor targets = test::index_tensor({1, 8}, test::kVocabulary, "out" + row);
                  backward(model->loss(inputs, targets, 1.0 / (8 * kRows), /*training=*/true));
                  step.finish_micro_batch();
                }
                step.update([&] { update(strategy->shards()); });
              }
              expect_bytes(*strategy, world.rank(), findings);
              const Weights mine = weights_of(*strategy);
              if (world.rank() == 0) result = mine;
            });
  for (const std::string& wrong : findings.wrong()) FAIL_CHECK(wrong);
  return result;
}

}  // namespace

TEST_CASE("a packed base has the bits of its unpacked values, and other values than before",
          "[cpu]") {
  const std::string preset = GENERATE("gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini");
  CAPTURE(preset);
  const ShardingOptions single = {.strategy = StrategyKind::ddp};
  const Weights packed = trained(preset, kPacked, 1, single);
  AdapterOptions plain = kPacked;
  plain.base.reset();
  CHECK(trained(preset, plain, 1, single, &packed) == packed);
  const Weights before = trained(preset, plain, 1, single);
  int changed = 0;
  for (const auto& [name, values] : before) {
    CAPTURE(name);
    const bool is_weight_of_layer =
        packed.contains(name.substr(0, name.rfind(".weight")) + ".lora_A.weight") ||
        packed.contains(name + ".lora_A.weight");
    if (!is_factor(name)) CHECK((values != packed.at(name)) == is_weight_of_layer);
    changed += is_weight_of_layer ? 1 : 0;
  }
  CHECK(changed >= 2 * 4);
}

TEST_CASE("a packed base: every strategy on 1, 2 and 4 ranks has the bits and bytes of one rank",
          "[cpu]") {
  const std::string preset = GENERATE("llama3-mini", "qwen3-moe-mini");
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const auto options = [&](StrategyKind kind) {
    return ShardingOptions{.strategy = kind, .compute_dtype = dtype};
  };
  const Weights expected = trained(preset, kPacked, 1, options(StrategyKind::ddp));
  for (const StrategyKind kind : {StrategyKind::ddp, StrategyKind::zero1, StrategyKind::zero2,
                                  StrategyKind::zero3, StrategyKind::fsdp, StrategyKind::hsdp}) {
    for (const int ranks : {2, 4}) {
      CAPTURE(preset, name_of(dtype), name_of(kind), ranks);
      CHECK(trained(preset, kPacked, ranks, options(kind)) == expected);
    }
  }
  ShardingOptions flat = options(StrategyKind::fsdp);
  flat.flatten_parameters = true;
  CHECK(trained(preset, kPacked, 4, flat) == expected);
  ShardingOptions groups = options(StrategyKind::fsdp);
  groups.reshard_group = 2;
  CHECK(trained(preset, kPacked, 4, groups) == expected);
  if (preset != "qwen3-moe-mini") return;
  ShardingOptions experts = options(StrategyKind::fsdp);
  experts.expert_parallel = 2;
  CHECK(trained(preset, kPacked, 4, experts) == expected);
}

TEST_CASE("a packed base: ranks gather a fourth of the bytes of 16 bits") {
  const auto gathered = [](const AdapterOptions& adapter) {
    Hyperparameters sizes = test::tiny("llama3-mini");
    std::visit([](auto& config) { config.width = 256; }, sizes);
    const auto model = with_adapters(make_model(sizes), adapter);
    std::int64_t bytes = 0;
    const ShardingOptions options = {.strategy = StrategyKind::fsdp, .compute_dtype = DType::bf16};
    for (const GroupPlan& group : make_plan(model->units(), options, {.ranks = 2}).groups) {
      for (const BucketLayout& bucket : group.buckets()) {
        for (int p = 0; p < bucket.parameter_count(); ++p) {
          if (!is_adaptable(bucket.parameters[static_cast<std::size_t>(p)])) continue;
          bytes +=
              bucket.numel(p) * static_cast<std::int64_t>(size_of(group.placement.compute_dtype));
        }
      }
    }
    return static_cast<double>(bytes);
  };
  AdapterOptions plain = kPacked;
  plain.base.reset();
  // Rows of 256 elements take 4.5 bits each, those of 40 more.
  CHECK(gathered(kPacked) / gathered(plain) < 0.32);
  CHECK(gathered(kPacked) / gathered(plain) > 4.5 / 16);
}

TEST_CASE("a packed base: Llama 3 8B with adapters takes 5.6 GiB of weights on one rank") {
  const auto model =
      with_adapters(make_model(model_preset("llama3-8b")), {.rank = 16, .base = AdapterBase::nf4});
  const Footprint planned = footprint_of(
      model->units(), {.strategy = StrategyKind::ddp, .compute_dtype = DType::bf16}, 1, 0);
  const std::int64_t width = 4096, wide = 14336, keys = 1024, vocabulary = 128256, layers = 32;
  // Rows of 64 and of 224 blocks have room for the mean and two ranges.
  const std::int64_t row = 64 * 33 + 16, wide_row = 224 * 33 + 16;
  const std::int64_t packed = layers * ((2 * width + 2 * keys + 2 * wide) * row + width * wide_row);
  const std::int64_t in_bf16 = 2 * vocabulary * width + (2 * layers + 1) * width;
  const std::int64_t factors =
      layers * 16 * (2 * (width + width) + 2 * (width + keys) + 3 * (width + wide));
  // bf16 and, of the factors, masters in f32.
  CHECK(planned.parameters == packed + 2 * in_bf16 + (2 + 4) * factors);
  CHECK(planned.optimizer == 8 * factors);
}

TEST_CASE("a packed base: ranks pack their parts of a file to the bytes of the whole", "[cpu]") {
  const auto folder = golden_folder("llama/llama3");
  const SafetensorsFile file(folder / "model.safetensors");
  for (const int ranks : {1, 3}) {
    for (const StrategyKind kind : {StrategyKind::zero1, StrategyKind::zero3, StrategyKind::fsdp}) {
      CAPTURE(ranks, name_of(kind));
      Weights found;
      run_ranks({.ranks = ranks, .threads = 1, .deadline = test::kSafetyLimit},
                [&](Communicator& world) {
                  const auto model = with_adapters(make_pretrained(folder), kPacked);
                  const auto strategy =
                      make_strategy(model->units(), {.strategy = kind}, /*seed=*/3, &world);
                  strategy->write_masters([&] { load_parameters(folder, strategy->shards()); });
                  const Weights mine = weights_of(*strategy);
                  if (world.rank() == 0) found = mine;
                });
      const test::Rank rank;
      for (const std::string name :
           {"model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"}) {
        const Tensor stored = file.tensor(name);
        const auto values = stored.to_vector<float>();
        const Tensor packed = Tensor::empty(nf4_packed_shape(stored.shape()), DType::u8);
        nf4_pack(packed, {}, stored.shape(), [&](const Tensor& to, std::int64_t first) {
          std::copy_n(values.begin() + first, to.numel(), to.data<float>());
        });
        const Tensor expected = Tensor::empty(stored.shape(), DType::f32);
        nf4_unpack(expected, packed);
        CHECK(found.at(name) == expected.to_vector<float>());
      }
      const Tensor norm = file.tensor("model.norm.weight");
      CHECK(found.at("model.norm.weight") == norm.to_vector<float>());
    }
  }
}

}  // namespace tessera
