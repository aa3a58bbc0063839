#include "models/llama/model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/file.h"
#include "runtime/safetensors.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::index_tensor;
using test::WholeModel;

const LlamaConfig kTiny{.vocab_size = 53,
                        .context = 12,
                        .layers = 2,
                        .heads = 4,
                        .kv_heads = 2,
                        .width = 24,
                        .mlp_width = 40,
                        .rope = {.theta = 100.0}};

/// Heads of 10, which is not width / heads; q/k norms, biases, tied.
LlamaConfig tiny_qwen3() {
  LlamaConfig config = kTiny;
  config.kind = LlamaKind::qwen3;
  config.head_size = 10;
  config.tied = true;
  config.attention_bias = true;
  return config;
}

LlamaConfig tiny(LlamaKind kind) {
  return kind == LlamaKind::qwen3 ? tiny_qwen3() : kTiny;
}

WholeModel whole_model(const LlamaConfig& config, std::uint64_t seed = 1,
                       const std::string& frozen = "") {
  return WholeModel(std::make_unique<Llama>(config), seed, frozen);
}

Tensor tiny_tokens(const std::string& name, std::int64_t batch = 3, std::int64_t tokens = 11) {
  return index_tensor({batch, tokens}, kTiny.vocab_size, name);
}

/// The loss and every gradient of one training step, to be compared bit for bit.
std::vector<std::vector<float>> step_bits(const WholeModel& whole) {
  return whole.step_bits(tiny_tokens("inputs"), tiny_tokens("targets"));
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

TEST_CASE("the llama family's presets have the published numbers of parameters, and no memory") {
  const test::Rank rank;
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"llama2-7b", 6738415616},   {"llama2-13b", 13015864320}, {"llama3-8b", 8030261248},
      {"llama3-70b", 70553706496}, {"llama3.1-8b", 8030261248}, {"llama3.2-1b", 1235814400},
      {"llama3.2-3b", 3212749824}, {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304},
      {"qwen2.5-7b", 7615616512},  {"qwen3-0.6b", 596049920},   {"qwen3-1.7b", 1720574976},
      {"qwen3-8b", 8190735360},
  };
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    const Llama model(llama_preset(name));
    std::int64_t parameters = 0;
    for (const Parameter& parameter : parameters_of(model)) {
      parameters += parameter.numel();
      CHECK_FALSE(parameter.is_open());
    }
    CHECK(parameters == count);
  }
  REQUIRE_THROWS_WITH(llama_preset("llama-3"), Contains("llama-3") && Contains("llama3-mini"));
}

TEST_CASE("a tied head is part of the first unit, an untied one is the last unit") {
  LlamaConfig tied = kTiny;
  tied.tied = true;
  REQUIRE(unit_names(Llama(kTiny)) ==
          std::vector<std::string>{"embedding", "layers.0", "layers.1", "head"});
  REQUIRE(unit_names(Llama(tied)) == std::vector<std::string>{"embedding", "layers.0", "layers.1"});
  REQUIRE(Llama(tied).units().front()->at_both_ends());
  REQUIRE_FALSE(Llama(kTiny).units().front()->at_both_ends());
}

TEST_CASE("initial values are Transformers': normal weights, norms of 1, biases of 0") {
  const test::Rank rank;
  LlamaConfig config = tiny_qwen3();
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

TEST_CASE("llama: a token has no influence on the logits before it") {
  const test::Rank rank;
  const WholeModel whole = whole_model(kTiny);
  const NoGradient no_gradient;
  std::vector<std::int32_t> ids = tiny_tokens("inputs", 1).to_vector<std::int32_t>();
  const Tensor before = whole.model->logits(Tensor::from(ids, {1, 11})).data().reshape({11, 53});
  ids[7] = (ids[7] + 1) % 53;
  const Tensor after = whole.model->logits(Tensor::from(ids, {1, 11})).data().reshape({11, 53});
  REQUIRE(test::same_bits(before.slice(0, 7), after.slice(0, 7)));
  for (std::int64_t row = 7; row < 11; ++row) {
    REQUIRE_FALSE(test::same_bits(before.slice(row, row + 1), after.slice(row, row + 1)));
  }
}

TEST_CASE("llama: the same bits for 1, 2 and 3 threads, and with recomputation") {
  const LlamaConfig config = tiny(GENERATE(LlamaKind::llama, LlamaKind::qwen3));
  const auto bits_on = [&](int threads, bool checkpointing) {
    const test::Rank rank(threads);
    const WholeModel whole = whole_model(config);
    for (const auto& unit : whole.model->units()) unit->set_checkpointing(checkpointing);
    return step_bits(whole);
  };
  const auto one = bits_on(1, false);
  REQUIRE(bits_on(2, false) == one);
  REQUIRE(bits_on(3, false) == one);
  REQUIRE(bits_on(2, true) == one);
}

TEST_CASE("llama: the cache gives the logits of the whole sequence, however it is fed") {
  const test::Rank rank;
  const WholeModel whole = whole_model(tiny(GENERATE(LlamaKind::llama, LlamaKind::qwen3)));
  const NoGradient no_gradient;
  const Tensor ids = tiny_tokens("inputs", 1, 12);
  const Tensor logits = whole.model->logits(ids).data().reshape({12, 53});
  const Tensor flat = ids.reshape({12});

  KeyValueCache cache(whole.model->shape());
  std::int64_t length = 0;
  for (const std::int64_t piece : {3, 1, 1, 5, 2}) {
    CAPTURE(length, piece);
    const Tensor next = whole.model->next_logits(flat.slice(length, length + piece), cache);
    length += piece;
    REQUIRE(test::relative_error(test::to_doubles(next),
                                 test::to_doubles(logits.slice(length - 1, length))) < 1e-6);
  }
  REQUIRE(cache.layers[0].keys.size(2) == 2 * whole.model->shape().head_size);
  REQUIRE_THROWS_WITH(whole.model->next_logits(flat.slice(0, 1), cache),
                      Contains("13 tokens") && Contains("context of 12"));
}

TEST_CASE("llama: freezing changes no bit of the other gradients") {
  const test::Rank rank;
  const LlamaKind kind = GENERATE(LlamaKind::llama, LlamaKind::qwen3);
  const LlamaConfig config = tiny(kind);
  std::string frozen = GENERATE("model.embed_tokens", "model.layers.0.", "model.norm",
                                "model.layers.0.self_attn.q_proj",
                                "model.layers.1.mlp.gate_proj,model.layers.1.input_layernorm");
  frozen += kind == LlamaKind::qwen3 ? ",model.layers.1.self_attn.k_norm" : ",lm_head";
  CAPTURE(frozen);
  const WholeModel all = whole_model(config), some = whole_model(config, 1, frozen);
  REQUIRE(some.differentiate(tiny_tokens("inputs"), tiny_tokens("targets")) ==
          all.differentiate(tiny_tokens("inputs"), tiny_tokens("targets")));
  int trained = 0;
  for (const Shard& shard : some.shards()) {
    CAPTURE(shard.parameter.name());
    REQUIRE(shard.gradient.defined() == shard.parameter.trainable());
    if (!shard.parameter.trainable()) continue;
    ++trained;
    REQUIRE(test::same_bits(shard.gradient, all.shard(shard.parameter.name()).gradient));
  }
  REQUIRE(trained > 0);
}

TEST_CASE("llama: angles in f32 give Transformers' logits too, with other bits") {
  const test::Rank rank;
  const auto folder = test::golden_folder("llama/one_kv_head");
  LlamaConfig config =
      llama_config_from(nlohmann::json::parse(read_text_file(folder / "config.json")));
  const auto logits_with = [&](RopeAngles angles) {
    config.rope_angles = angles;
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

TEST_CASE("llama: wrong sizes are refused") {
  const auto refusal = [](auto change) {
    LlamaConfig config = kTiny;
    change(config);
    try {
      check_config(config);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(refusal([](LlamaConfig& c) { c.kv_heads = 3; }),
             Contains("4") && Contains("3 kv_heads"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.kv_heads = 0; }), Contains("kv_heads is 0"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.width = 26; }), Contains("width is 26"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.head_size = 5; }), Contains("head_size is 5"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.mlp_width = 0; }), Contains("mlp_width is 0"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.dropout = 0.1; }), Contains("dropout is 0.1"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.norm_epsilon = 0.0; }), Contains("rms_norm_eps is 0"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.rope.theta = 0.5; }), Contains("rope_theta is 0.5"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.layers = 0; }), Contains("layers is 0"));
  CHECK_THAT(refusal([](LlamaConfig& c) {
               c.kind = LlamaKind::qwen3;
               c.heads = c.kv_heads = 1 << 12;
               c.head_size = 1 << 9;
             }),
             Contains("heads * head_size is 2097152"));
  CHECK_THAT(refusal([](LlamaConfig& c) { c.rope.scaling = LinearScaling{.factor = -1.0}; }),
             Contains("factor is -1"));
}

}  // namespace tessera
