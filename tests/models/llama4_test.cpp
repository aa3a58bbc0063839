#include "models/llama4/model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/routers.h"
#include "runtime/file.h"
#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::golden_folder;
using test::same_bits;
using test::TemporaryDirectory;
using test::WholeModel;

/// Layers 0 and 2 have no experts, layer 2 has no RoPE.
const Llama4Config kTiny = [] {
  auto config = test::tiny<Llama4Config>("llama4-mini");
  config.layers = 4;
  return config;
}();

std::string refusal(const std::string& key, const json& value) {
  return test::refusal("llama4/typical", key, value);
}

/// The logits' rows of positions [first, end) with other bits if the token at `position` is another.
std::vector<std::int64_t> influenced(const Llama4Config& config, std::int64_t position) {
  const WholeModel whole(std::make_unique<Llama4>(config));
  const NoGradient no_gradient;
  std::vector<std::int32_t> ids = test::tiny_tokens("inputs", 1).to_vector<std::int32_t>();
  const auto logits = [&] {
    return whole.model->logits(Tensor::from(ids, {1, 11})).data().reshape({11, 53});
  };
  const Tensor before = logits();
  ids[static_cast<std::size_t>(position)] = (ids[static_cast<std::size_t>(position)] + 1) % 53;
  const Tensor after = logits();
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 11; ++row) {
    if (!same_bits(before.slice(row, row + 1), after.slice(row, row + 1))) rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("Llama 4's presets have as many parameters in experts as Transformers' models") {
  const test::Rank rank;
  // Llama4ForCausalLM of Transformers 5.23.0 with the published sizes.
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"llama4-scout", 96'636'764'160}, {"llama4-maverick", 386'547'056'640}};
  for (const auto& [name, with_experts] : published) {
    CAPTURE(name);
    const auto model = make_model(model_preset(name));
    std::int64_t of_experts = 0;
    for (const Parameter& parameter : parameters_of(*model)) {
      if (parameter.name().find(".experts.") != std::string::npos) of_experts += parameter.numel();
    }
    CHECK(of_experts == with_experts);
    CHECK(model->units().size() == 50);
  }
}

TEST_CASE("the published config.json of Llama-4-Scout gives the preset") {
  const json text = {{"attention_bias", false},
                     {"attention_chunk_size", 8192},
                     {"attention_dropout", 0.0},
                     {"attn_scale", 0.1},
                     {"attn_temperature_tuning", 4},
                     {"bos_token_id", 200000},
                     {"eos_token_id", {200001, 200007, 200008}},
                     {"floor_scale", 8192},
                     {"for_llm_compressor", false},
                     {"head_dim", 128},
                     {"hidden_act", "silu"},
                     {"hidden_size", 5120},
                     {"initializer_range", 0.02},
                     {"interleave_moe_layer_step", 1},
                     {"intermediate_size", 8192},
                     {"intermediate_size_mlp", 16384},
                     {"max_position_embeddings", 262144},
                     {"model_type", "llama4_text"},
                     {"no_rope_layers", json::array()},
                     {"num_attention_heads", 40},
                     {"num_experts_per_tok", 1},
                     {"num_hidden_layers", 48},
                     {"num_key_value_heads", 8},
                     {"num_local_experts", 16},
                     {"output_router_logits", false},
                     {"pad_token_id", 200018},
                     {"rms_norm_eps", 1e-05},
                     {"rope_scaling",
                      {{"factor", 8.0},
                       {"high_freq_factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"original_max_position_embeddings", 8192},
                       {"rope_type", "llama3"}}},
                     {"rope_theta", 500000.0},
                     {"router_aux_loss_coef", 0.001},
                     {"router_jitter_noise", 0.0},
                     {"torch_dtype", "bfloat16"},
                     {"use_cache", true},
                     {"use_qk_norm", true},
                     {"vocab_size", 202048}};
  const json whole = {{"architectures", {"Llama4ForConditionalGeneration"}},
                      {"boi_token_index", 200080},
                      {"model_type", "llama4"},
                      {"text_config", text},
                      {"tie_word_embeddings", false},
                      {"vision_config", {{"hidden_size", 1408}}}};
  const json preset = make_model(model_preset("llama4-scout"))->config();
  CHECK(to_json(llama4_config_from(whole)) == preset);
  CHECK(to_json(llama4_config_from(text)) == preset);
  json without = text;
  for (const char* key : {"rope_theta", "interleave_moe_layer_step", "intermediate_size_mlp",
                          "intermediate_size", "head_dim", "num_local_experts", "floor_scale",
                          "attn_scale", "use_qk_norm", "attention_chunk_size",
                          "attn_temperature_tuning", "no_rope_layers", "num_key_value_heads"}) {
    without.erase(key);
  }
  CHECK(to_json(llama4_config_from(without)) == preset);  // Transformers' defaults
  json broken = whole;
  broken.erase("text_config");
  CHECK_THROWS_WITH(llama4_config_from(broken), Contains("text_config is missing"));
  broken = whole;
  broken["text_config"]["hidden_size"] = "wide";
  CHECK_THROWS_WITH(llama4_config_from(broken), Contains("text_config.hidden_size"));
}

TEST_CASE("a Llama 4 without chunks is read and written") {
  json no_chunks = test::golden_config("llama4/typical");
  no_chunks["attention_chunk_size"] = nullptr;
  no_chunks.erase("layer_types");
  const Llama4Config read = llama4_config_from(no_chunks);
  CHECK(read.attention_chunk == 0);
  CHECK(shape_of(read).chunks.layers == 0);
  CHECK(to_json(read).at("attention_chunk_size").is_null());
  CHECK(to_json(llama4_config_from(to_json(read))) == to_json(read));
}

TEST_CASE("Llama 4's layers are those that Transformers makes") {
  const auto layers = [](const auto& has) {
    std::vector<bool> result;
    for (std::int64_t i = 0; i < 6; ++i) result.push_back(has(i));
    return result;
  };
  Llama4Config config = kTiny;
  config.layers = 6;
  const auto experts = [&] {
    return layers([&](std::int64_t i) { return config.has_experts(i); });
  };
  const auto rope = [&] { return layers([&](std::int64_t i) { return config.has_rope(i); }); };
  CHECK(experts() == std::vector<bool>{false, true, false, true, false, true});
  CHECK(rope() == std::vector<bool>{true, true, false, true, true, false});
  CHECK(shape_of(config).experts.layers == 3);
  CHECK(shape_of(config).chunks.layers == 4);
  config.expert_layers = {0, 4};
  config.rope_layers = {0, 1, 0, 0, 1, 0, 1, 1};
  CHECK(experts() == std::vector<bool>{true, false, false, false, true, false});
  CHECK(rope() == std::vector<bool>{false, true, false, false, true, false});
  config.expert_layers.emplace();  // an empty list is no layers, a missing one every second
  CHECK(experts() == std::vector<bool>(6, false));
  CHECK(Llama4(config).routers() == nullptr);
  CHECK(Llama4(kTiny).routers()->layers() == 2);
}

TEST_CASE("the temperature rises with the logarithm of the position's multiple of the scale") {
  Llama4Config config = kTiny;
  config.attention_scale = 0.3;
  CHECK(temperature_of(config, 0) == 1.0);
  CHECK(temperature_of(config, 1) == 1.0);
  CHECK(temperature_of(config, 2) == Approx(1 + 0.3 * std::log(2.0)).epsilon(1e-15));
  CHECK(temperature_of(config, 4) == temperature_of(config, 2));
  CHECK(temperature_of(config, 5) == Approx(1 + 0.3 * std::log(3.0)).epsilon(1e-15));
  config.floor_scale = 8192;
  CHECK(temperature_of(config, 8190) == 1.0);
  CHECK(temperature_of(config, 8191) > 1.2);
}

TEST_CASE("a Llama 4's config.json that would compute something else is refused by its key") {
  CHECK_THAT(refusal("attention_chunk_size", 0), Contains("attention_chunk_size is 0"));
  CHECK_THAT(refusal("attention_chunk_size", -8), Contains("attention_chunk_size is -8"));
  CHECK_THAT(refusal("layer_types", {"full_attention"}), Contains("a list of 4 layers"));
  CHECK_THAT(refusal("layer_types", std::vector<std::string>(4, "full_attention")),
             Contains("\"full_attention\" for layer 0; expected chunked_attention"));
  CHECK_THAT(refusal("no_rope_layers", {1, 0}),
             Contains("no_rope_layers has 2 layers; expected 4"));
  CHECK_THAT(refusal("no_rope_layer_interval", 0), Contains("no_rope_layer_interval is 0"));
  CHECK_THAT(refusal("interleave_moe_layer_step", 0), Contains("interleave_moe_layer_step is 0"));
  CHECK_THAT(refusal("moe_layers", {-1}), Contains("names layer -1"));
  CHECK_THAT(refusal("num_experts_per_tok", 5), Contains("experts_per_token is 5"));
  CHECK_THAT(refusal("floor_scale", 0), Contains("floor_scale is 0"));
  CHECK_THAT(refusal("attn_temperature_tuning", "yes"), Contains("attn_temperature_tuning"));
}

TEST_CASE("llama4: with RoPE a token influences its chunk only, without RoPE all that follow") {
  const test::Rank rank;
  using Rows = std::vector<std::int64_t>;
  Llama4Config config = kTiny;
  config.expert_layers.emplace();  // an expert's products round by the number of its tokens
  config.rope_layers = {1, 1, 1, 1};
  CHECK(influenced(config, 1) == Rows{1, 2, 3});
  CHECK(influenced(config, 4) == Rows{4, 5, 6, 7});
  CHECK(influenced(config, 10) == Rows{10});
  config.attention_chunk = 0;
  CHECK(influenced(config, 7) == Rows{7, 8, 9, 10});
  config.attention_chunk = 4;
  config.rope_layers = {1, 1, 0, 1};
  CHECK(influenced(config, 6) == Rows{6, 7, 8, 9, 10});
}

TEST_CASE("the text model is read from the files of the whole model, which hold more") {
  const test::Rank rank;
  const std::string name = GENERATE("typical", "odd");  // odd is tied
  const auto original = golden_folder("llama4/" + name);
  const TemporaryDirectory folder;
  NamedTensors weights = test::golden_weights("llama4/" + name);
  for (auto& [tensor, values] : weights) tensor = "language_model." + tensor;
  weights.emplace_back("vision_model.model.layers.70.mlp.fc1.bias", Tensor::zeros({3}, DType::f32));
  weights.emplace_back("multi_modal_projector.linear_1.weight", Tensor::zeros({3}, DType::f32));
  write_safetensors(folder / "model.safetensors", weights);
  json whole_config = {{"model_type", "llama4"},
                       {"text_config", test::golden_config("llama4/" + name)}};
  write_file_atomically(folder / "config.json", whole_config.dump());
  const WholeModel text(original), whole(folder.path());
  for (const Shard& shard : text.shards()) {
    CAPTURE(shard.parameter.name());
    CHECK(same_bits(shard.data, whole.shard(shard.parameter.name()).data));
  }
  // More layers than the text model has are found before memory is allocated.
  whole_config["text_config"]["num_hidden_layers"] = 60;
  whole_config["text_config"].erase("layer_types");
  whole_config["text_config"].erase("no_rope_layers");
  write_file_atomically(folder / "config.json", whole_config.dump());
  CHECK_THROWS_WITH(read_hyperparameters(folder.path()), Contains("60 layers; the weights have"));
}

}  // namespace tessera
