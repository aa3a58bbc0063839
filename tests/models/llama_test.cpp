#include "models/llama/model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/safetensors.h"
#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::tiny_tokens;
using test::WholeModel;

const LlamaConfig kTiny = test::tiny<LlamaConfig>("llama3-mini");

WholeModel whole_model(const LlamaConfig& config, std::uint64_t seed = 1) {
  return WholeModel(std::make_unique<Llama>(config), seed);
}

std::vector<std::string> unit_names(const LanguageModel& model) {
  std::vector<std::string> names;
  std::size_t count = 0;
  for (const auto& unit : model.units()) {
    names.push_back(unit->name());
    count += unit->parameters().size();
  }
  CHECK(count == parameters_of(model).size());
  return names;
}

}  // namespace

TEST_CASE("the units hold every parameter once, a tied head in the first, another in the last") {
  LlamaConfig tied = kTiny;
  tied.tied = true;
  REQUIRE(unit_names(Llama(kTiny)) ==
          std::vector<std::string>{"embedding", "layers.0", "layers.1", "head"});
  REQUIRE(unit_names(Llama(tied)) == std::vector<std::string>{"embedding", "layers.0", "layers.1"});
  REQUIRE(unit_names(*make_model(test::tiny("gpt2-mini"))) ==
          std::vector<std::string>{"embedding", "h.0", "h.1"});
  REQUIRE(Llama(tied).units().front()->at_both_ends());
  REQUIRE_FALSE(Llama(kTiny).units().front()->at_both_ends());
}

TEST_CASE("initial values are Transformers': normal weights, norms of 1, biases of 0") {
  const test::Rank rank;
  auto config = test::tiny<LlamaConfig>("qwen3-mini");
  config.vocab_size = 701;
  config.width = 64;
  config.mlp_width = 96;
  const WholeModel whole = whole_model(config, /*seed=*/5);
  for (const Shard& shard : whole.shards()) {
    const std::string& name = shard.parameter.name();
    CAPTURE(name);
    const std::vector<float> values = shard.data.to_vector<float>();
    if (shard.parameter.shape().rank() == 1) {
      const float expected = name.ends_with(".bias") ? 0.0f : 1.0f;
      CHECK(values == std::vector<float>(values.size(), expected));
      continue;
    }
    double square = 0.0;
    for (const float value : values) square += double{value} * value;
    const auto count = static_cast<double>(values.size());
    CHECK(std::abs(std::sqrt(square / count) / 0.02 - 1) < 5 / std::sqrt(2 * count));
  }
}

TEST_CASE("llama: angles in f32 give Transformers' logits too, with other bits") {
  const test::Rank rank;
  const auto folder = test::golden_folder("llama/one_kv_head");
  LlamaConfig config = llama_config_from(test::golden_config("llama/one_kv_head"));
  const auto logits_with = [&](RopeAngles angles) {
    config.rope.angles = angles;
    const WholeModel whole = whole_model(config);
    load_parameters(folder, whole.shards());
    const NoGradient no_gradient;
    const SafetensorsFile expected(folder / "expected.safetensors");
    return whole.model->logits(expected.tensor("input_ids").clone()).data();
  };
  const Tensor exact = logits_with(RopeAngles::exact), rounded = logits_with(RopeAngles::f32);
  REQUIRE_FALSE(test::same_bits(exact, rounded));
  const SafetensorsFile expected(folder / "expected.safetensors");
  const auto reference = test::to_doubles(expected.tensor("logits"));
  CHECK(test::relative_error(test::to_doubles(exact), reference) < 1e-5);
  CHECK(test::relative_error(test::to_doubles(rounded), reference) < 1e-6);
}

TEST_CASE("llama: the table of angles is as long as the sequences, not as the context") {
  test::Rank rank;
  LlamaConfig config = kTiny;
  config.context = 1 << 24;
  const WholeModel whole = whole_model(config);
  const auto table_bytes = [&] {
    return rank.context.allocator().account()[Category::other].current;
  };
  const NoGradient no_gradient;
  const Tensor ids = tiny_tokens("inputs"), longer = tiny_tokens("longer", 1, 17);
  const std::int64_t before = table_bytes();
  whole.model->logits(ids);
  CHECK(table_bytes() - before == 2 * 16 * 3 * 4);  // 16 positions, 3 pairs
  whole.model->logits(longer);
  CHECK(table_bytes() - before >= 2 * 32 * 3 * 4);
  CHECK(table_bytes() - before <= 2 * (32 + 16) * 3 * 4);  // work on a GPU may hold the old table
}

}  // namespace tessera
