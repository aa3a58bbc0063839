// Every family against Hugging Face Transformers on the same weights. tests/golden/README.md describes
// the files.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/routers.h"
#include "optim/adamw.h"
#include "optim/shards.h"
#include "runtime/json.h"
#include "runtime/safetensors.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::golden_folder;
using test::relative_error;
using test::to_doubles;
using test::WholeModel;

constexpr double kTolerance = 1e-5;
constexpr int kAdamWSteps = 10;

const std::vector<std::string> kMixtures = {"qwen3_moe/typical", "qwen3_moe/odd",
                                            "qwen3_moe/all_experts", "qwen3_moe/idle_expert"};

std::vector<std::string> all_models() {
  std::vector<std::string> models = {
      "gpt2/plain",          "gpt2/odd",           "gpt2/one_layer",     "gpt2/exact_gelu",
      "llama/llama3",        "llama/odd",          "llama/one_kv_head",  "llama/qwen2",
      "llama/qwen3",         "llama/qwen3_tied",   "llama/dynamic",      "llama/longrope_short",
      "llama/longrope_long", "llama/mistral",      "llama/qwen2_window", "llama/qwen3_window",
      "llama/olmo2",         "llama/olmo2_odd",    "llama4/typical",     "llama4/odd",
      "llama4/packed",       "llama4/all_experts", "gemma3/typical",     "gemma3/odd"};
  models.insert(models.end(), kMixtures.begin(), kMixtures.end());
  return models;
}
const std::vector<std::string> kModels = all_models();

/// A model with Transformers' weights, a batch, and Transformers' results.
struct Golden : WholeModel {
  SafetensorsFile expected;
  Tensor inputs;
  Tensor targets;
  Tensor document_starts;  // undefined: a row is one document

  explicit Golden(const std::string& name)
      : WholeModel(golden_folder(name)),
        expected(golden_folder(name) / "expected.safetensors"),
        inputs(expected.tensor("input_ids").clone()),  // on this build's device
        targets(expected.tensor("targets").clone()) {
    constexpr const char* kStarts = "document_starts";
    if (expected.contains(kStarts)) document_starts = expected.tensor(kStarts);
  }

  using WholeModel::differentiate, WholeModel::evaluate;
  float evaluate() const { return evaluate(inputs, targets, document_starts); }
  float differentiate() const { return differentiate(inputs, targets, 1.0, document_starts); }

  std::vector<double> values(const std::string& name) const {
    return to_doubles(expected.tensor(name));
  }

  /// Compares every gradient with the expected one, whose name has this prefix.
  void check_gradients(const std::string& prefix) const {
    for (const Shard& shard : shards()) {
      CAPTURE(shard.parameter.name());
      const auto reference = values(prefix + shard.parameter.name());
      CHECK(relative_error(to_doubles(shard.gradient), reference) < kTolerance);
    }
  }
};

/// AdamW with the settings of the golden files.
AdamW make_adamw(const std::vector<Shard>& shards) {
  return AdamW(shards_for_optimizer(shards),
               {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
}

std::int32_t largest(const Tensor& logits) {
  const std::vector<float> values = logits.to_vector<float>();
  return static_cast<std::int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

TEST_CASE("logits agree with Transformers") {
  const test::Rank rank;
  const std::string name = GENERATE(from_range(kModels));
  CAPTURE(name);
  const Golden golden(name);
  const NoGradient no_gradient;
  const Tensor logits = golden.model->logits(golden.inputs, golden.document_starts).data();
  REQUIRE(logits.shape() == golden.expected.tensor("logits").shape());
  REQUIRE(relative_error(to_doubles(logits), golden.values("logits")) < kTolerance);
}

TEST_CASE("every gradient agrees with Transformers") {
  const test::Rank rank;
  const std::string name = GENERATE(from_range(kModels));
  CAPTURE(name);
  const Golden golden(name);
  const float loss = golden.differentiate();
  REQUIRE(loss == Approx(golden.values("loss").front()).epsilon(kTolerance));

  std::size_t gradients = 0;
  for (const auto& [name, info] : golden.expected.tensors()) gradients += name.starts_with("grad.");
  REQUIRE(golden.shards().size() == gradients);
  golden.check_gradients("grad.");
}

TEST_CASE("with hf balance the losses and every gradient agree with output_router_logits") {
  const test::Rank rank;
  const std::string name = GENERATE(from_range(kMixtures));
  CAPTURE(name);
  const Golden golden(name);
  Routers& routers = *golden.model->routers();
  const nlohmann::json config = read_json_file(golden_folder(name) / "config.json");
  routers.set_training({.balance = Balance::hf,
                        .loss_coefficient = config.at("router_aux_loss_coef").get<double>()});
  routers.start_step({.tokens = golden.inputs.numel()});
  const float loss = golden.differentiate();
  CHECK(loss == Approx(golden.values("loss").front()).epsilon(kTolerance));
  const double balance = golden.values("balance_loss").front();
  CHECK(routers.router_losses().item<float>() == Approx(balance).epsilon(kTolerance));
  golden.check_gradients("balanced.grad.");
}

TEST_CASE("micro-batches add up to the gradients of the whole batch") {
  const test::Rank rank;
  const Golden golden(GENERATE("gpt2/plain", "gpt2/odd", "llama/odd", "llama/qwen3",
                               "qwen3_moe/odd", "llama4/odd"));
  const double scale = test::mean_scale(golden.targets);
  Step step = golden.strategy->start_step();
  for (std::int64_t row = 0; row < golden.inputs.size(0); ++row) {
    backward(golden.model->loss(golden.inputs.slice(row, row + 1),
                                golden.targets.slice(row, row + 1), scale, /*training=*/true));
  }
  step.finish_micro_batch();
  golden.check_gradients("grad.");
}

TEST_CASE("the losses of ten AdamW steps agree with PyTorch") {
  const test::Rank rank;
  const std::string name = GENERATE(from_range(kModels));
  CAPTURE(name);
  const Golden golden(name);
  const std::vector<double> expected = golden.values("adamw_losses");
  REQUIRE(expected.size() == kAdamWSteps + 1);

  AdamW optimizer = make_adamw(golden.shards());
  for (int step = 0; step < kAdamWSteps; ++step) {
    CAPTURE(step);
    const float loss = golden.differentiate();
    CHECK(loss == Approx(expected[step]).epsilon(kTolerance));
    optimizer.step(/*learning_rate=*/1e-3);
  }
  const float after = golden.evaluate();
  REQUIRE(after == Approx(expected.back()).epsilon(kTolerance));
}

TEST_CASE("greedy generation with the cache gives the tokens of Transformers") {
  const test::Rank rank;
  const Golden golden(GENERATE("gpt2/plain", "llama/llama3", "llama/qwen2", "llama/qwen3",
                               "llama/mistral", "llama/qwen3_window", "qwen3_moe/typical",
                               "llama4/typical", "gemma3/typical"));
  const auto expected = golden.expected.tensor("continuation").to_vector<std::int32_t>();

  KeyValueCache cache(golden.model->shape());
  Tensor next = golden.expected.tensor("prompt").clone();
  std::vector<std::int32_t> continuation;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    continuation.push_back(largest(golden.model->next_logits(next, cache)));
    next = Tensor::from(std::vector{continuation.back()}, {1});
  }
  REQUIRE(continuation == expected);
}

}  // namespace tessera
