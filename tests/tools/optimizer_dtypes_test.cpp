// Masters, moments and gradients in bf16, together with strategies, offloading and dtypes of computation.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cast/op.h"
#include "tests/support/device.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::same_bits;
using test::TrainedSession;

constexpr int kRanks = 2;

Config tiny(DType compute, DType master, DType state, DType gradient = DType::f32) {
  Config config;
  config.model = {.preset = "gpt2-mini", .layers = 1, .heads = 2, .width = 10, .context = 12};
  config.model.vocab_size = 37;
  config.data = {.batch_size = 4, .sequence_length = 9, .accumulation_steps = 2};
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.master_dtype = master;
  config.optimizer.state_dtype = state;
  config.optimizer.gradient_dtype = gradient;
  if (gradient != DType::f32) config.data.accumulation_steps = 1;
  config.runtime.compute_dtype = compute;
  return config;
}

std::string name_of(const Config& config) {
  return fmt::format("computed in {}, masters {}, moments {}, gradients {}, offload {}",
                     name_of(config.runtime.compute_dtype), name_of(config.optimizer.master_dtype),
                     name_of(config.optimizer.state_dtype),
                     name_of(config.optimizer.gradient_dtype), name_of(config.sharding.offload));
}

/// The copies of the masters, which the optimizer has written, are the masters' casts.
void expect_copies(TrainingSession& session, Findings& findings) {
  context().compute_stream().synchronize();
  for (const Shard& shard : session.strategy().shards()) {
    if (!shard.copy.defined()) continue;
    const Tensor master = shard.data.to_host(), copy = shard.copy.to_host();
    const Tensor expected = Tensor::empty_on_host(master.shape(), copy.dtype());
    const std::vector<Tensor> to = {expected}, from = {master};
    cpu::cast_all(to, from);
    findings.expect(same_bits(copy.reshape(expected.shape()), expected), shard.parameter.name());
  }
}

TrainedSession run(const Config& config, Findings& findings) {
  const auto after = [&](TrainingSession& session, Communicator&, int) {
    expect_copies(session, findings);
  };
  return test::train_session(
      config, kRanks,
      {.count = 3, .device = test::device(), .findings = &findings, .after = after});
}

/// Every strategy, each with an offload of its own. `turn` gives it another one.
void expect_same_bits(const Config& base, std::size_t turn) {
  constexpr std::array kOffloads = {Offload::none, Offload::optimizer, Offload::all};
  Findings findings;
  const TrainedSession ddp = run(variant_of(base, "ddp"), findings);
  CHECK(std::isfinite(ddp.losses.back()));
  CHECK(ddp.losses.front() != ddp.losses.back());
  for (const std::string& strategy : strategy_variants()) {
    Config config = base;
    if (!test::device().is_cpu()) config.sharding.offload = kOffloads[turn++ % kOffloads.size()];
    config = variant_of(config, strategy);
    findings.expect(run(config, findings) == ddp, strategy + ", " + name_of(config));
  }
  INFO(name_of(base));
  CHECK(findings.wrong() == std::vector<std::string>());
}

}  // namespace

TEST_CASE("bf16 masters and moments: every strategy has ddp's bits and the predicted memory") {
  expect_same_bits(tiny(DType::bf16, DType::bf16, DType::bf16), 0);
}

TEST_CASE("bf16 moments next to f32 masters: ddp's bits and the predicted memory") {
  expect_same_bits(tiny(DType::bf16, DType::f32, DType::bf16), 1);
}

TEST_CASE("bf16 masters under a computation in f32: ddp's bits and the predicted memory") {
  expect_same_bits(tiny(DType::f32, DType::bf16, DType::f32), 2);
}

TEST_CASE("bf16 gradients: every strategy has ddp's bits and the predicted memory") {
  expect_same_bits(tiny(DType::bf16, DType::f32, DType::f32, DType::bf16), 0);
}

TEST_CASE("bf16 gradients next to bf16 masters: ddp's bits and the predicted memory") {
  Config config = tiny(DType::bf16, DType::bf16, DType::bf16, DType::bf16);
  config.model = test::tiny_model("qwen3-moe-mini", 12);
  expect_same_bits(config, 1);
}

TEST_CASE("bf16 gradients that are written once have the bits of f32 gradients sent in bf16") {
  Findings findings;
  Config held = tiny(DType::bf16, DType::f32, DType::f32, DType::bf16);
  held.model = test::tiny_model("llama3-8b", 12);  // the head is no table
  held = variant_of(held, "fsdp");
  Config sent = held;
  sent.optimizer.gradient_dtype = DType::f32;
  sent.sharding.reduce_dtype = DType::bf16;
  CHECK(run(held, findings) == run(sent, findings));
  sent.sharding.reduce_dtype = DType::f32;
  CHECK_FALSE(run(held, findings) == run(sent, findings));
}

TEST_CASE("f16 copies that AdamW or SGD writes: ddp's bits and the predicted memory") {
  Config config = tiny(DType::f16, DType::f32, DType::f32);
  expect_same_bits(config, 0);
  config.optimizer.name = OptimizerKind::sgd;
  expect_same_bits(config, 1);
}

TEST_CASE("bf16 masters learn as f32 masters do") {
  Findings findings;
  const auto losses = [&](DType master, DType state) {
    return run(variant_of(tiny(DType::bf16, master, state), "fsdp"), findings).losses;
  };
  const std::vector<float> wide = losses(DType::f32, DType::f32);
  const std::vector<float> narrow = losses(DType::bf16, DType::bf16);
  CHECK(narrow != wide);
  CHECK(narrow.back() == Approx(wide.back()).epsilon(0.01));
}

TEST_CASE("another seed rounds equal masters to other neighbours") {
  const test::Rank rank;
  const auto updated = [](std::int64_t seed) {
    Config config = tiny(DType::bf16, DType::bf16, DType::bf16);
    config.train.seed = seed;
    const auto model = make_model(resolve(config));
    const Parameter parameter = parameters_of(*model).front();
    const Shape shape = parameter.shape();
    const Shard shard{.parameter = parameter,
                      .data = test::normal_tensor(shape, DType::bf16, "w"),
                      .gradient = test::normal_tensor(shape, DType::f32, "g")};
    OptimizerGroups(make_optimizers(config, *model, {shard}, {}), /*ema_decay=*/0.0)
        .step(std::vector{1e-4});
    return test::to_doubles(shard.data);
  };
  CHECK(updated(1) == updated(1));
  CHECK(updated(1) != updated(2));
}

TEST_CASE("sgd refuses bf16 masters and moments in one line") {
  for (const bool masters : {true, false}) {
    Config config = tiny(DType::bf16, DType::f32, DType::f32);
    config.optimizer.name = OptimizerKind::sgd;
    (masters ? config.optimizer.master_dtype : config.optimizer.state_dtype) = DType::bf16;
    CHECK_THROWS_WITH(resolve(config),
                      Contains(masters ? "optimizer.master_dtype" : "optimizer.state_dtype") &&
                          Contains("bf16 is for adamw, which rounds at random; sgd keeps f32"));
  }
}

}  // namespace tessera
