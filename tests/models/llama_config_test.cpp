// config.json of the llama family: both dialects of Transformers, and the entries that are refused.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/models/whole_model.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::golden_config;

/// The same config.json in the dialect of Transformers 4.x.
json old_dialect(json config) {
  json rope = config.at("rope_parameters");
  config.erase("rope_parameters");
  config["rope_theta"] = rope.at("rope_theta");
  rope.erase("rope_theta");
  if (rope.at("rope_type") == "default") return config;
  rope["type"] = rope.at("rope_type");  // the older of its two spellings
  rope.erase("rope_type");
  config["rope_scaling"] = rope;
  return config;
}

std::string refusal(const std::string& key, const json& value,
                    const std::string& name = "llama/llama3") {
  return test::refusal(name, key, value);
}

/// The scaling that is read from an object of the old dialect.
RopeScaling scaling_of(const json& scaling) {
  json config = old_dialect(golden_config("llama/qwen3"));
  config["max_position_embeddings"] = 4096;
  config["rope_scaling"] = scaling;
  return llama_config_from(config).rope.scaling;
}

}  // namespace

TEST_CASE("both dialects of a config.json give the same model") {
  const std::string name =
      GENERATE("llama3", "odd", "one_kv_head", "qwen2", "qwen3", "qwen3_tied", "dynamic",
               "longrope_short", "mistral", "qwen2_window", "qwen3_window", "olmo2", "olmo2_odd");
  CAPTURE(name);
  const json config = golden_config("llama/" + name);
  const json written = to_json(llama_config_from(config));
  CHECK(to_json(llama_config_from(old_dialect(config))) == written);
  CHECK(to_json(llama_config_from(written)) == written);
}

TEST_CASE("the hub's config.json of Llama 3.1 8B gives the preset") {
  const json config = {
      {"model_type", "llama"},
      {"architectures", {"LlamaForCausalLM"}},
      {"attention_bias", false},
      {"bos_token_id", 128000},
      {"hidden_act", "silu"},
      {"hidden_size", 4096},
      {"initializer_range", 0.02},
      {"intermediate_size", 14336},
      {"max_position_embeddings", 131072},
      {"mlp_bias", false},
      {"num_attention_heads", 32},
      {"num_hidden_layers", 32},
      {"num_key_value_heads", 8},
      {"pretraining_tp", 1},
      {"rms_norm_eps", 1e-05},
      {"rope_scaling",
       {{"factor", 8.0},
        {"low_freq_factor", 1.0},
        {"high_freq_factor", 4.0},
        {"original_max_position_embeddings", 8192},
        {"rope_type", "llama3"}}},
      {"rope_theta", 500000.0},
      {"tie_word_embeddings", false},
      {"torch_dtype", "bfloat16"},
      {"vocab_size", 128256},
  };
  CHECK(to_json(llama_config_from(config)) == make_model(model_preset("llama3.1-8b"))->config());
}

TEST_CASE("entries that a config.json leaves out have Transformers' defaults") {
  json config = golden_config("llama/llama3");
  for (const char* key : {"num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters",
                          "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act"}) {
    config.erase(key);
  }
  const LlamaConfig read = llama_config_from(config);
  CHECK(read.kv_heads == read.heads);
  CHECK(read.head_size == read.width / read.heads);
  CHECK(read.norm_epsilon == 1e-6);
  CHECK(read.rope.theta == 10000.0);
  CHECK(read.rope.scaling == RopeScaling());
  CHECK_FALSE(read.tied);
  json qwen3 = golden_config("llama/qwen3");
  qwen3.erase("head_dim");
  CHECK(llama_config_from(qwen3).head_size == 128);
}

TEST_CASE("pad_token_id is read, and counts from the vocabulary's end if it is negative") {
  json config = golden_config("llama/llama3");
  const auto read = [&] { return llama_config_from(config); };
  CHECK_FALSE(read().padding_id.has_value());
  CHECK_FALSE(to_json(read()).contains("pad_token_id"));
  config["pad_token_id"] = 96;
  CHECK(read().padding_id == 96);
  CHECK(to_json(read()).at("pad_token_id") == 96);
  config["pad_token_id"] = -97;
  CHECK(read().padding_id == 0);
  CHECK_THAT(refusal("pad_token_id", 97),
             Contains("pad_token_id is 97; expected a token below vocab_size, 97"));
  CHECK_THAT(refusal("pad_token_id", -98), Contains("pad_token_id is -98"));
}

TEST_CASE("every kind of RoPE scaling is read") {
  CHECK(scaling_of(nullptr) == RopeScaling());
  CHECK(scaling_of({{"type", "linear"}, {"factor", 2.0}}) == RopeScaling(LinearScaling{2.0}));
  // Llama 4 Scout's factors are equal. The original context defaults to the model's.
  CHECK(scaling_of({{"rope_type", "llama3"},
                    {"factor", 16.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 1.0}}) ==
        RopeScaling(Llama3Scaling{16.0, 1.0, 1.0, 4096.0}));
  CHECK(scaling_of({{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", nullptr}}) ==
        RopeScaling(YarnScaling{.factor = 4.0, .original_context = 4096.0}));
  // The factor defaults to how far the context is stretched.
  CHECK(scaling_of({{"type", "yarn"},
                    {"original_max_position_embeddings", 1024},
                    {"attention_factor", 1.5},
                    {"beta_slow", 2},
                    {"truncate", false}}) == RopeScaling(YarnScaling{.factor = 4.0,
                                                                     .original_context = 1024.0,
                                                                     .slow_periods = 2.0,
                                                                     .whole_pairs = false,
                                                                     .amplitude = 1.5}));
  const RopeScaling scaled =
      scaling_of({{"type", "yarn"}, {"factor", 40.0}, {"mscale", 0.707}, {"mscale_all_dim", 1.0}});
  const double expected = (0.1 * 0.707 * std::log(40.0) + 1.0) / (0.1 * std::log(40.0) + 1.0);
  CHECK(std::get<YarnScaling>(scaled).amplitude.value() == Approx(expected).epsilon(1e-14));
}

TEST_CASE("dynamic scaling stretches the context, and longrope's amplitude follows from it") {
  const LlamaConfig dynamic = llama_config_from(golden_config("llama/dynamic"));
  CHECK(dynamic.context == 64);  // 4 times 16
  CHECK(dynamic.rope.scaling == RopeScaling(DynamicScaling{4.0, 16.0}));
  CHECK(to_json(dynamic).at("max_position_embeddings") == 16);
  const json longrope = {{"rope_type", "longrope"},
                         {"short_factor", {1, 1, 1, 1, 1, 1.5}},
                         {"long_factor", {1, 2, 3, 4, 5, 6}},
                         {"original_max_position_embeddings", 1024}};
  const LongRopeScaling expected{.short_factors = {1, 1, 1, 1, 1, 1.5},
                                 .long_factors = {1, 2, 3, 4, 5, 6},
                                 .original_context = 1024.0,
                                 .amplitude = std::sqrt(1.0 + std::log(4.0) / std::log(1024.0))};
  const auto read = std::get<LongRopeScaling>(scaling_of(longrope));
  CHECK(read.amplitude == Approx(expected.amplitude).epsilon(1e-14));
  CHECK(read.short_factors == expected.short_factors);
  CHECK(read.long_factors == expected.long_factors);
  CHECK(read.original_context == expected.original_context);
  // Phi-3 has the original context outside.
  json outside = old_dialect(golden_config("llama/longrope_short"));
  outside["rope_scaling"].erase("original_max_position_embeddings");
  outside["original_max_position_embeddings"] = 8;
  const LlamaConfig phi = llama_config_from(outside);
  CHECK(std::get<LongRopeScaling>(phi.rope.scaling).original_context == 8.0);
  json given = longrope;
  given["attention_factor"] = 1.25;
  CHECK(std::get<LongRopeScaling>(scaling_of(given)).amplitude == 1.25);
  CHECK(refusal("rope_parameters", {{"rope_type", "longrope"}, {"short_factor", {1, 2}}}) ==
        "rope_frequencies: short_factors are the numbers [1, 2]; expected 4 positive ones, one for "
        "each pair of channels");
  CHECK_THAT(refusal("rope_parameters", {{"rope_type", "longrope"}, {"long_factor", {"1"}}}),
             Contains("rope_parameters.long_factor is") && Contains("a list of numbers"));
  CHECK_THAT(refusal("rope_parameters", {{"rope_type", "dynamic"}, {"factor", -1}}),
             Contains("factor is -1"));
}

TEST_CASE("windows are read as Transformers reads them") {
  const auto read = [](json config, const json& changes = json::object()) {
    config.update(changes);
    for (const auto& [key, value] : changes.items()) {
      if (value == "erased") config.erase(key);
    }
    return llama_config_from(config);
  };
  const json mistral = golden_config("llama/mistral"), qwen = golden_config("llama/qwen2_window");
  CHECK(read(mistral).window == 5);
  CHECK(shape_of(read(mistral)).windows.layers == 2);
  CHECK(read(mistral, {{"sliding_window", nullptr}}).window == 0);
  CHECK(read(mistral, {{"sliding_window", "erased"}}).window == 4096);
  CHECK(read(mistral, {{"num_key_value_heads", "erased"}, {"num_attention_heads", 16}}).kv_heads ==
        8);
  CHECK(read(qwen).window_layers == std::vector<std::int64_t>{1, 2});
  CHECK(shape_of(read(qwen)).windows.layers == 2);
  CHECK(read(qwen, {{"layer_types", "erased"}}).window_layers == std::vector<std::int64_t>{1, 2});
  CHECK(read(qwen, {{"layer_types", nullptr}, {"max_window_layers", nullptr}})
            .window_layers->empty());
  CHECK(read(qwen, {{"layer_types", nullptr}, {"use_sliding_window", false}}).window == 0);
  CHECK(shape_of(read(golden_config("llama/qwen3_window"))).windows.layers == 2);
  CHECK_THAT(refusal("sliding_window", 0, "llama/mistral"),
             Contains("sliding_window is 0; expected at least 1, or null for no window"));
  CHECK_THAT(refusal("attention_bias", true, "llama/mistral"), Contains("attention_bias"));
  CHECK_THAT(
      refusal("use_sliding_window", false, "llama/qwen2_window"),
      Contains("layer_types has \"sliding_attention\" for layer 1; expected full_attention"));
  CHECK_THAT(refusal("layer_types", {"sliding_attention"}, "llama/qwen3_window"),
             Contains("expected a list of 3 layers"));
  CHECK_THAT(refusal("layer_types", {"full_attention", "chunked_attention", "full_attention"},
                     "llama/qwen3_window"),
             Contains("layer_types has \"chunked_attention\" for layer 1"));
  LlamaConfig llama;
  llama.window = 5;
  CHECK_THROWS_WITH(check_config(llama), Contains("window is 5; expected 0"));
}

TEST_CASE("a config.json that would compute something else is refused by its key") {
  CHECK_THAT(refusal("layer_types", {"sliding_attention"}, "llama/qwen3"), Contains("layer_types"));
  CHECK_THAT(refusal("mlp_bias", true, "llama/qwen3"), Contains("mlp_bias"));
  CHECK_THAT(refusal("attention_bias", false, "llama/qwen2"), Contains("attention_bias"));
  CHECK_THAT(refusal("rope_scaling", {{"type", "linear"}}),
             Contains("rope_scaling and rope_parameters are both given"));
  CHECK_THAT(
      refusal("rope_parameters", {{"rope_type", "proportional"}}),
      Contains("rope_type is \"proportional\"; expected default, linear, llama3, yarn, dynamic "
               "or longrope"));
  CHECK_THAT(refusal("rope_parameters", {{"rope_type", "yarn"}, {"factor", "four"}}),
             Contains("rope_parameters.factor is \"four\"; expected a number"));
  CHECK_THAT(refusal("rope_parameters", {{"partial_rotary_factor", 0.25}}),
             Contains("partial_rotary_factor is 0.25"));
  CHECK_THAT(refusal("rope_parameters", 7),
             Contains("rope_parameters is \"7\"; expected an object"));
  CHECK_THAT(
      refusal("rope_parameters", {{"rope_type", "yarn"}, {"original_max_position_embeddings", 0}}),
      Contains("original_max_position_embeddings is 0"));
  CHECK_THAT(refusal("rope_parameters", {{"rope_type", "llama3"}, {"factor", 5e-324}}),
             Contains("not finite"));
  CHECK_THAT(refusal("intermediate_size", -4), Contains("mlp_width is -4"));
  CHECK_THAT(refusal("head_dim", 0, "llama/qwen2"), Contains("no error"));  // null in old files
  CHECK_THAT(refusal("head_dim", -2), Contains("head_size is -2"));
}

}  // namespace tessera
