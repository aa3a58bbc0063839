#include "models/gemma3/model.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/half.h"
#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::golden_config;
using test::same_bits;
using test::WholeModel;

std::string refusal(const std::string& key, const json& value) {
  return test::refusal("gemma3/typical", key, value);
}

/// The same config.json in the dialect of Transformers 4.x.
json old_dialect(json config) {
  const json rope = config.at("rope_parameters");
  config.erase("rope_parameters");
  const json& global = rope.at("full_attention");
  config["rope_theta"] = global.at("rope_theta");
  config["rope_local_base_freq"] = rope.at("sliding_attention").at("rope_theta");
  if (global.contains("factor")) {
    config["rope_scaling"] = {{"rope_type", global.at("rope_type")},
                              {"factor", global.at("factor")}};
  }
  return config;
}

/// Logits [11, V] of a model with these weights, whose layer 0 is local and layer 1 global.
Tensor logits_of(const Gemma3Config& config) {
  const NoGradient no_gradient;
  return WholeModel(std::make_unique<Gemma3>(config))
      .model->logits(test::tiny_tokens("inputs", 1))
      .data();
}

}  // namespace

TEST_CASE("both dialects of Gemma 3's config.json, and that of a model with images, agree") {
  const std::string name = GENERATE("gemma3/typical", "gemma3/odd");
  CAPTURE(name);
  const json config = golden_config(name);
  const Gemma3Config read = gemma3_config_from(config);
  const json written = to_json(read);
  CHECK(to_json(gemma3_config_from(old_dialect(config))) == written);
  CHECK(to_json(gemma3_config_from(written)) == written);
  CHECK(to_json(gemma3_config_from({{"model_type", "gemma3"}, {"text_config", config}})) ==
        written);
  if (name == "gemma3/odd") return;
  CHECK(read.global_every == 3);
  CHECK(read.local_theta == 50.0);
  CHECK(read.rope.theta == 500.0);
  CHECK(std::get<LinearScaling>(read.rope.scaling).factor == 3.0);
  CHECK(shape_of(read).windows.layers == 3);
  CHECK(shape_of(read).windows.tokens == 5);
}

TEST_CASE(
    "the published config.json of Gemma 3 4B gives the preset, which leaves the defaults out") {
  const json text = {{"hidden_size", 2560},
                     {"intermediate_size", 10240},
                     {"model_type", "gemma3_text"},
                     {"num_hidden_layers", 34},
                     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                     {"sliding_window", 1024}};
  const json whole = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                      {"model_type", "gemma3"},
                      {"text_config", text},
                      {"vision_config", {{"hidden_size", 1152}}}};
  json preset = make_model(model_preset("gemma3-4b"))->config();
  preset["pad_token_id"] = 0;
  CHECK(to_json(gemma3_config_from(whole)) == preset);
}

TEST_CASE(
    "entries of Gemma's config.json that would compute something else are refused by their keys") {
  CHECK_THAT(refusal("hidden_activation", "silu"),
             Contains("hidden_activation is \"silu\"; expected 'gelu_pytorch_tanh'"));
  CHECK_THAT(refusal("final_logit_softcapping", 30.0),
             Contains("final_logit_softcapping is given"));
  CHECK_THAT(refusal("attn_logit_softcapping", 50.0), Contains("attn_logit_softcapping is given"));
  CHECK_THAT(refusal("use_bidirectional_attention", true), Contains("use_bidirectional_attention"));
  CHECK_THAT(refusal("sliding_window", 0), Contains("sliding_window is 0"));
  CHECK_THAT(refusal("sliding_window", nullptr), Contains("sliding_window"));
  CHECK_THAT(refusal("query_pre_attn_scalar", 0), Contains("query_pre_attn_scalar is 0"));
  CHECK_THAT(refusal("hidden_size", 30),
             Contains("width is 30; expected a multiple of the 4 heads"));
  CHECK_THAT(
      refusal("layer_types",
              {"sliding_attention", "full_attention", "full_attention", "sliding_attention"}),
      Contains("layer_types has \"full_attention\" for layer 2; expected sliding_attention"));
  CHECK_THAT(refusal("layer_types", {"full_attention"}), Contains("expected a list of 4 layers"));
  CHECK_THAT(refusal("rope_parameters",
                     {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
             Contains("sliding_attention has a scaling"));
  CHECK_THAT(refusal("model_type", "gemma2"), Contains("gemma2, which caps its logits"));
  CHECK_THAT(refusal("model_type", "gemma3"), Contains("text_config is missing"));
}

TEST_CASE("Gemma 3's norms start as the identity, with weights of 0") {
  const test::Rank rank;
  const WholeModel whole(std::make_unique<Gemma3>(test::tiny<Gemma3Config>("gemma3-mini")));
  std::size_t norms = 0;
  for (const Shard& shard : whole.shards()) {
    if (shard.parameter.name().find("norm.weight") == std::string::npos) continue;
    ++norms;
    CHECK(test::to_doubles(shard.data) ==
          std::vector<double>(static_cast<std::size_t>(shard.data.numel()), 0.0));
  }
  CHECK(norms == 2 * 6 + 1);
}

TEST_CASE("Gemma 3's embeddings are multiplied by the root of the width, rounded to their dtype") {
  const test::Rank rank;
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  const WholeModel whole(std::make_unique<Gemma3>(test::tiny<Gemma3Config>("gemma3-mini")));
  whole.compute_in(dtype);
  const auto rounded = [&](float x) {
    if (dtype == DType::f32) return x;
    return dtype == DType::bf16 ? static_cast<float>(bfloat16(x)) : static_cast<float>(float16(x));
  };
  const NoGradient no_gradient;
  const Tensor ids = test::tiny_tokens("inputs", 1);
  const auto found = test::to_doubles(
      whole.model->loss_of_stage({0, 1}, Variable(), ids, ids, 1.0, /*training=*/false).data());
  const auto table = whole.shard("model.embed_tokens.weight").data.to_vector<float>();
  const float root = rounded(4.898979486f);  // of 24
  const auto tokens = ids.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const float weight = rounded(table[static_cast<std::size_t>(tokens[i / 24]) * 24 + i % 24]);
    CHECK(found[i] == static_cast<double>(rounded(weight * root)));
  }
}

TEST_CASE("Gemma 3's options each change the logits") {
  const test::Rank rank;
  const auto config = test::tiny<Gemma3Config>("gemma3-mini");
  const Tensor expected = logits_of(config);
  const auto with = [&](const auto& change) {
    Gemma3Config changed = config;
    change(changed);
    return logits_of(changed);
  };
  CHECK(same_bits(with([](Gemma3Config&) {}), expected));
  CHECK_FALSE(same_bits(with([](auto& c) { c.query_scalar = 8; }), expected));
  CHECK_FALSE(same_bits(with([](auto& c) { c.window = 5; }), expected));
  CHECK_FALSE(same_bits(with([](auto& c) { c.global_every = 3; }), expected));
  CHECK_FALSE(same_bits(with([](auto& c) { c.rope.theta = 30.0; }), expected));
  CHECK_FALSE(same_bits(with([](auto& c) { c.local_theta = 30.0; }), expected));
  CHECK_FALSE(
      same_bits(with([](auto& c) { c.rope.scaling = LinearScaling{.factor = 2.0}; }), expected));
}

}  // namespace tessera
