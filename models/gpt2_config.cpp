// GPT-2's published sizes, and its config.json.
#include <map>
#include <nlohmann/json.hpp>

#include "models/gpt2.h"
#include "runtime/check.h"

namespace tessera {

Gpt2Config gpt2_preset(std::string_view name) {
  static const std::map<std::string_view, Gpt2Config> presets = {
      {"gpt2", {.layers = 12, .heads = 12, .width = 768}},
      {"gpt2-medium", {.layers = 24, .heads = 16, .width = 1024}},
      {"gpt2-large", {.layers = 36, .heads = 20, .width = 1280}},
      {"gpt2-xl", {.layers = 48, .heads = 25, .width = 1600}},
      {"gpt2-mini", {.context = 256, .layers = 4, .heads = 4, .width = 256}},
  };
  const auto found = presets.find(name);
  check(found != presets.end(),
        "unknown model '{}': choose gpt2, gpt2-medium, gpt2-large, gpt2-xl or gpt2-mini", name);
  return found->second;
}

nlohmann::json Gpt2::config() const {
  // Left out, these would mean 50256, which a smaller vocabulary does not have.
  constexpr std::int64_t kEndOfText = 50256;
  const nlohmann::json end_of_text =
      config_.vocab_size > kEndOfText ? nlohmann::json(kEndOfText) : nlohmann::json();
  return {
      {"model_type", "gpt2"},
      {"architectures", {"GPT2LMHeadModel"}},
      {"vocab_size", config_.vocab_size},
      {"n_positions", config_.context},
      {"n_embd", config_.width},
      {"n_layer", config_.layers},
      {"n_head", config_.heads},
      {"n_inner", nullptr},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", config_.norm_epsilon},
      {"initializer_range", 0.02},
      {"embd_pdrop", config_.dropout},
      {"resid_pdrop", config_.dropout},
      {"attn_pdrop", 0.0},
      {"bos_token_id", end_of_text},
      {"eos_token_id", end_of_text},
      {"tie_word_embeddings", true},
  };
}

Gpt2Config gpt2_config_from(const nlohmann::json& config) {
  const auto text = [&](const char* key, const char* fallback) {
    return config.contains(key) && config[key].is_string() ? config[key].get<std::string>()
                                                           : std::string(fallback);
  };
  const auto whole = [&](const char* key) {
    check(config.contains(key) && config[key].is_number_integer(),
          "config.json: '{}' is missing or not a whole number", key);
    return config[key].get<std::int64_t>();
  };
  const auto number = [&](const char* key, double fallback) {
    if (!config.contains(key) || config[key].is_null()) return fallback;
    check(config[key].is_number(), "config.json: '{}' is not a number", key);
    return config[key].get<double>();
  };
  check(text("model_type", "") == "gpt2",
        "config.json: model_type is '{}', but only 'gpt2' can be read", text("model_type", ""));
  const std::string activation = text("activation_function", "gelu_new");
  check(activation == "gelu_new" || activation == "gelu_pytorch_tanh",
        "config.json: activation_function '{}' is not supported; GPT-2 uses 'gelu_new'",
        activation);
  // Variants that would load and silently compute something else.
  const auto must_be = [&](const char* key, bool expected) {
    const nlohmann::json value = config.value(key, nlohmann::json(expected));
    check(value == expected, "config.json: {} is {}, but only {} is supported", key, value.dump(),
          expected);
  };
  must_be("tie_word_embeddings", true);
  must_be("scale_attn_weights", true);
  must_be("scale_attn_by_inverse_layer_idx", false);
  Gpt2Config result{
      .vocab_size = whole("vocab_size"),
      .context = whole("n_positions"),
      .layers = whole("n_layer"),
      .heads = whole("n_head"),
      .width = whole("n_embd"),
      .dropout = number("resid_pdrop", 0.0),
      .norm_epsilon = number("layer_norm_epsilon", 1e-5),
  };
  const double inner = number("n_inner", 4.0 * static_cast<double>(result.width));
  check(inner == 4.0 * static_cast<double>(result.width),
        "config.json: n_inner {} is not supported; GPT-2's is 4 * n_embd = {}", inner,
        4 * result.width);
  return result;
}

}  // namespace tessera
