// The properties that the models of all families have.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "models/routers.h"
#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::kPresets;
using test::kVocabulary;
using test::tiny;
using test::tiny_tokens;
using test::WholeModel;

constexpr std::int64_t kContext = 12;

WholeModel whole_model(const Hyperparameters& hyperparameters, const std::string& frozen = "") {
  return WholeModel(make_model(hyperparameters), /*seed=*/1, frozen);
}

/// The loss and every gradient of one training step in `dtype`, and the routers' counts. GPT-2
/// has dropout.
std::vector<std::vector<float>> step_bits(const std::string& preset, DType dtype, int threads,
                                          bool checkpointing) {
  const test::Rank rank(threads);
  Hyperparameters hyperparameters = tiny(preset);
  if (auto* const gpt2 = std::get_if<Gpt2Config>(&hyperparameters)) gpt2->dropout = 0.2;
  const WholeModel whole = whole_model(hyperparameters);
  whole.compute_in(dtype);
  for (const auto& unit : whole.model->units()) unit->set_checkpointing(checkpointing);
  Routers* const routers = whole.model->routers();
  if (routers != nullptr) {
    routers->set_training({.balance = Balance::hf, .loss_coefficient = 0.1, .z_loss = 0.01});
    routers->start_step({.tokens = 33});
  }
  auto bits = whole.step_bits(tiny_tokens("inputs"), tiny_tokens("targets"));
  if (routers == nullptr) return bits;
  const auto counts = routers->counts();
  bits.emplace_back(counts.begin(), counts.end());
  bits.push_back({routers->router_losses().item<float>()});
  return bits;
}

/// The names of every third parameter, beginning with the one of this number.
std::string every_third(const LanguageModel& model, std::size_t first) {
  std::string names;
  const std::vector<Parameter> parameters = parameters_of(model);
  for (std::size_t i = first; i < parameters.size(); i += 3) {
    names += (names.empty() ? "" : ",") + parameters[i].name();
  }
  return names;
}

/// A GPU adds up a linear's bias gradient within the product for its weight's gradient, or alone.
bool is_bias_of_frozen_weight(const WholeModel& whole, const std::string& name) {
  if (!name.ends_with(".bias")) return false;
  const std::string weight = name.substr(0, name.rfind('.')) + ".weight";
  return !whole.shard(weight).parameter.trainable();
}

/// The message of the error that check_config raises after a change of a member of every family.
template <typename Change>
std::string refusal(const std::string& preset, const Change& change) {
  Hyperparameters hyperparameters = tiny(preset);
  std::visit([&](auto& config) { change(config); }, hyperparameters);
  return test::error_of([&] { check_config(hyperparameters); });
}

}  // namespace

TEST_CASE("the presets have the published numbers of parameters, and no memory") {
  const test::Rank rank;
  // Llama 4's and Gemma 3's are those of Transformers 5.23.0 with the published sizes, without the vision model.
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},
      {"llama2-7b", 6'738'415'616},
      {"llama2-13b", 13'015'864'320},
      {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496},
      {"llama3.1-8b", 8'030'261'248},
      {"llama3.2-1b", 1'235'814'400},
      {"llama3.2-3b", 3'212'749'824},
      {"mistral-7b", 7'241'732'096},
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-1.7b", 1'720'574'976},
      {"qwen3-8b", 8'190'735'360},
      {"olmo2-1b", 1'484'916'736},
      {"olmo2-7b", 7'298'617'344},
      {"olmo2-13b", 13'716'198'400},
      {"olmo2-32b", 32'234'279'936},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"llama4-scout", 107'769'861'120},
      {"gemma3-270m", 268'098'176},
      {"gemma3-1b", 999'885'952},
      {"gemma3-4b", 3'880'263'168},
      {"gemma3-12b", 11'766'034'176},
      {"gemma3-27b", 27'009'346'304},
      {"llama4-maverick", 400'711'848'960},
  };
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    const auto model = make_model(model_preset(name));
    std::int64_t parameters = 0;
    for (const Parameter& parameter : parameters_of(*model)) {
      parameters += parameter.numel();
      CHECK_FALSE(parameter.is_open());
    }
    CHECK(parameters == count);
  }
  // Every other preset is one of ours.
  for (const std::string_view name : model_presets()) {
    const bool is_published = std::any_of(published.begin(), published.end(),
                                          [&](const auto& one) { return one.first == name; });
    CHECK(is_published != name.ends_with("-mini"));
  }
}

TEST_CASE("a token has no influence on the logits before it") {
  const test::Rank rank;
  const std::string preset = GENERATE(from_range(kPresets));
  CAPTURE(preset);
  Hyperparameters hyperparameters = tiny(preset);
  // A GPU rounds an expert's products by the number of its tokens.
  if (auto* const llama4 = std::get_if<Llama4Config>(&hyperparameters); llama4 && test::kOnGpu) {
    llama4->expert_layers.emplace();
  }
  const WholeModel whole = whole_model(hyperparameters);
  const NoGradient no_gradient;
  std::vector<std::int32_t> ids = tiny_tokens("inputs", 1).to_vector<std::int32_t>();
  const auto logits = [&] {
    return whole.model->logits(Tensor::from(ids, {1, 11})).data().reshape({11, kVocabulary});
  };
  const Tensor before = logits();
  ids[7] = (ids[7] + 1) % kVocabulary;
  const Tensor after = logits();
  CHECK(test::same_bits(before.slice(0, 7), after.slice(0, 7)));
  for (std::int64_t row = 7; row < 11; ++row) {
    CHECK_FALSE(test::same_bits(before.slice(row, row + 1), after.slice(row, row + 1)));
  }
}

TEST_CASE("a step has the same bits for 1, 2 and 3 threads, and with recomputation") {
  const std::string preset = GENERATE(from_range(kPresets));
  CAPTURE(preset);
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  CAPTURE(name_of(dtype));
  const auto one = step_bits(preset, dtype, 1, false);
  REQUIRE(one.front().front() > 0.0f);
  CHECK(step_bits(preset, dtype, 2, false) == one);
  CHECK(step_bits(preset, dtype, 3, false) == one);
  CHECK(step_bits(preset, dtype, 2, true) == one);
}

TEST_CASE("a model in stages has the loss and the gradients of the whole, bit for bit") {
  for (const std::string& preset : kPresets) {
    const test::Rank rank(1);
    const WholeModel whole = whole_model(tiny(preset));
    const Tensor inputs = tiny_tokens("inputs"), targets = tiny_tokens("targets");
    const auto expected = whole.step_bits(inputs, targets);
    const std::int64_t parts = whole.model->shape().layers + 2;
    for (std::int64_t cut = 1; cut < parts; ++cut) {
      INFO(preset << " in the parts [0, " << cut << ") and [" << cut << ", " << parts << ")");
      const auto run = [&](const Stage& stage, const Variable& x) {
        return whole.model->loss_of_stage(stage, x, inputs, targets, test::mean_scale(targets),
                                          /*training=*/true);
      };
      Step step = whole.strategy->start_step();
      const Variable sent = run({0, cut}, Variable());
      const Variable received = Variable::leaf(sent.data());
      const Variable loss = run({cut, parts}, received);
      backward(loss);
      backward(sent, received.gradient());
      step.finish_micro_batch();
      step.discard();
      CHECK(loss.data().item<float>() == expected[0][0]);
      for (std::size_t i = 0; i < whole.shards().size(); ++i) {
        CHECK(whole.shards()[i].gradient.to_vector<float>() == expected[i + 1]);
      }
    }
    CHECK_THAT(
        test::error_of([&] {
          whole.model->loss_of_stage({1, parts + 1}, Variable(), inputs, targets, 1.0, false);
        }),
        Contains("and the model has"));
    CHECK_THAT(test::error_of([&] {
                 whole.model->loss_of_stage({1, parts}, Variable(), inputs, targets, 1.0, false);
               }),
               Contains("takes the residual stream"));
  }
}

TEST_CASE("the cache gives the logits of the whole sequence, however it is fed") {
  const test::Rank rank;
  const std::string preset = GENERATE(from_range(kPresets));
  CAPTURE(preset);
  const WholeModel whole = whole_model(tiny(preset));
  const NoGradient no_gradient;
  const Tensor ids = tiny_tokens("inputs", 1, kContext);
  const Tensor logits = whole.model->logits(ids).data().reshape({kContext, kVocabulary});
  const Tensor flat = ids.reshape({kContext});
  KeyValueCache cache(whole.model->shape());
  std::int64_t length = 0;
  for (const std::int64_t piece : {3, 1, 1, 5, 2}) {
    CAPTURE(length, piece);
    const Tensor next = whole.model->next_logits(flat.slice(length, length + piece), cache);
    length += piece;
    REQUIRE(cache.length == length);
    REQUIRE(test::relative_error(test::to_doubles(next),
                                 test::to_doubles(logits.slice(length - 1, length))) < 1e-6);
  }
  const TransformerShape& shape = whole.model->shape();
  const auto& [keys, values] = cache.layers[0];  // in one tensor, or in two
  CHECK(keys.size(2) + (values.defined() ? values.size(2) : 0) ==
        2 * shape.kv_heads * shape.head_size);
  CHECK_THROWS_WITH(whole.model->next_logits(flat.slice(0, 1), cache),
                    Contains("13 tokens") && Contains("context of 12"));
}

TEST_CASE("freezing changes no bit of the other gradients, in any family") {
  const test::Rank rank;
  const std::string preset = GENERATE(from_range(kPresets));
  const WholeModel all = whole_model(tiny(preset));
  const float loss = all.differentiate(tiny_tokens("inputs"), tiny_tokens("targets"));
  for (const std::size_t first : {0, 1, 2}) {
    const std::string frozen = every_third(*all.model, first);
    CAPTURE(preset, frozen);
    const WholeModel some = whole_model(tiny(preset), frozen);
    CHECK(some.differentiate(tiny_tokens("inputs"), tiny_tokens("targets")) == loss);
    std::size_t trained = 0;
    for (const Shard& shard : some.shards()) {
      const std::string& name = shard.parameter.name();
      CAPTURE(name);
      CHECK(shard.gradient.defined() == shard.parameter.trainable());
      if (!shard.parameter.trainable()) continue;
      ++trained;
      if (test::kOnGpu && is_bias_of_frozen_weight(some, name)) continue;
      CHECK(test::same_bits(shard.gradient, all.shard(name).gradient));
    }
    CHECK(trained >= some.shards().size() / 3);
    CHECK(trained < some.shards().size());
  }
}

TEST_CASE("sizes that no model can have are refused by their names") {
  const std::string preset = GENERATE(from_range(kPresets));
  CAPTURE(preset);
  const auto of = [&](const auto& change) { return refusal(preset, change); };
  CHECK_THAT(of([](auto& c) { c.layers = 0; }), Contains("layers is 0"));
  CHECK_THAT(of([](auto& c) { c.vocab_size = -1; }), Contains("vocab_size is -1"));
  CHECK_THAT(of([](auto& c) { c.context = 1 << 25; }), Contains("context is 33554432"));
  CHECK_THAT(of([](auto& c) { c.dropout = 1.5; }), Contains("dropout is 1.5"));
  CHECK_THAT(of([](auto& c) {
               c.width = 26;
               if constexpr (requires { c.head_size; }) c.head_size = 0;
             }),
             Contains("width is 26"));
  if (preset == "gpt2-mini") return;
  const auto with = [&](const auto& change) {
    return of([&](auto& c) {
      if constexpr (requires { c.rope; }) change(c);
    });
  };
  CHECK_THAT(with([](auto& c) { c.kv_heads = 3; }), Contains("4") && Contains("3 kv_heads"));
  CHECK_THAT(with([](auto& c) { c.kv_heads = 0; }), Contains("kv_heads is 0"));
  CHECK_THAT(with([](auto& c) { c.head_size = 5; }), Contains("head_size is 5"));
  CHECK_THAT(with([](auto& c) { c.mlp_width = 0; }), Contains("mlp_width is 0"));
  CHECK_THAT(with([](auto& c) { c.norm_epsilon = 0.0; }), Contains("rms_norm_eps is 0"));
  CHECK_THAT(with([](auto& c) { c.rope.theta = 0.5; }), Contains("rope_theta is 0.5"));
  CHECK_THAT(with([](auto& c) { c.rope.scaling = LinearScaling{.factor = -1.0}; }),
             Contains("factor is -1"));
  CHECK_THAT(with([](auto& c) {
               c.heads = c.kv_heads = 1 << 12;
               c.width = 1 << 12;
               c.head_size = 1 << 9;
             }),
             Contains("heads * head_size is 2097152"));
}

TEST_CASE("entries of a config.json that would compute something else are refused by their keys") {
  const std::string folder =
      GENERATE("llama/llama3", "llama/qwen3", "qwen3_moe/odd", "llama4/typical");
  CAPTURE(folder);
  CHECK_THAT(test::refusal(folder, "hidden_act", "gelu"),
             Contains("hidden_act is \"gelu\"; expected 'silu'"));
  CHECK_THAT(test::refusal(folder, "quantization_config", json::object()),
             Contains("quantization_config"));
  if (folder != "llama/qwen3") {
    CHECK_THAT(test::refusal(folder, "use_sliding_window", true), Contains("use_sliding_window"));
  }
  CHECK_THAT(test::refusal(folder, "partial_rotary_factor", 0.5),
             Contains("partial_rotary_factor is 0.5"));
  CHECK_THAT(test::refusal(folder, "rope_angles", "f64"),
             Contains("rope_angles is \"f64\"; expected exact or f32"));
  CHECK_THAT(test::refusal(folder, "head_dim", 5), Contains("head_size is 5"));
  CHECK_THAT(test::refusal(folder, "rms_norm_eps", 0.0), Contains("rms_norm_eps is 0"));
  CHECK_THAT(test::refusal(folder, "num_key_value_heads", 0), Contains("kv_heads is 0"));
  CHECK_THAT(test::refusal(folder, "tie_word_embeddings", "yes"), Contains("tie_word_embeddings"));
  CHECK_THAT(test::refusal(folder, "hidden_size", std::uint64_t{1} << 63), Contains("hidden_size"));
  CHECK_THAT(test::refusal(folder, "hidden_size", std::int64_t{1} << 62),
             Contains("width is 4611686018427387904"));
}

TEST_CASE("a config.json keeps the kind of angles, and only the other kind than Transformers'") {
  const std::string preset = GENERATE("llama3-mini", "qwen3-moe-mini", "llama4-mini");
  CAPTURE(preset);
  Hyperparameters hyperparameters = tiny(preset);
  const auto set = [&](RopeAngles angles) {
    std::visit(
        [&](auto& config) {
          if constexpr (requires { config.rope; }) config.rope.angles = angles;
        },
        hyperparameters);
    return make_model(hyperparameters)->config();
  };
  CHECK_FALSE(set(RopeAngles::exact).contains("rope_angles"));
  const json config = set(RopeAngles::f32);
  CHECK(config.at("rope_angles") == "f32");
  CHECK(make_model(family_of(config).config_from(config))->config() == config);
}

}  // namespace tessera
