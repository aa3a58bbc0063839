#include "models/gemma3/config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

constexpr const char* kActivation = "gelu_pytorch_tanh";

/// Transformers' defaults, which published files of models with images leave out.
nlohmann::json usual_entries() {
  return {{"vocab_size", 262208},     {"max_position_embeddings", 131072},
          {"hidden_size", 2304},      {"intermediate_size", 9216},
          {"num_hidden_layers", 26},  {"num_attention_heads", 8},
          {"num_key_value_heads", 4}, {"head_dim", 256},
          {"sliding_window", 4096},   {"tie_word_embeddings", true},
          {"pad_token_id", 0}};
}

/// Refuses entries that would load and silently compute something else.
void check_supported(const ConfigReader& reader) {
  check_supported_decoder(reader, "hidden_activation", kActivation);
  reader.require("use_bidirectional_attention", false);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    check(!reader.has(key), "config.json: {} is given; expected null: caps are not supported", key);
  }
}

/// The entry of rope_parameters (5.x) for layers of this type, or null.
nlohmann::json rope_of(const nlohmann::json& config, const char* layer_type) {
  const auto found = config.find("rope_parameters");
  if (found == config.end() || !found->is_object()) return nullptr;
  return found->value(layer_type, nlohmann::json());
}

/// The theta of local layers: rope_local_base_freq (4.x), or that of an entry of rope_parameters.
double read_local_theta(const nlohmann::json& config, std::int64_t context) {
  const double theta = ConfigReader(config).number("rope_local_base_freq", 1e4);
  const nlohmann::json local = {{"rope_parameters", rope_of(config, "sliding_attention")}};
  const RopeConfig rope = read_rope(ConfigReader(local), context, theta);
  check(std::holds_alternative<std::monostate>(rope.scaling),
        "config.json: rope_parameters.sliding_attention has a scaling; expected rope_type default");
  return rope.theta;
}

/// One more than the first global layer, or than the last layer if every layer is local.
std::int64_t read_pattern(const ConfigReader& reader, const nlohmann::json& config,
                          std::int64_t layers) {
  const auto types = config.find("layer_types");
  if (types == config.end() || !types->is_array()) {
    return reader.whole("sliding_window_pattern", 6);
  }
  std::int64_t first = 0;
  while (first < layers && first < std::ssize(*types) &&
         (*types)[static_cast<std::size_t>(first)] != "full_attention") {
    ++first;
  }
  return first + 1;
}

std::string_view layer_type(const Gemma3Config& config, std::int64_t layer) {
  return config.is_local(layer) ? "sliding_attention" : "full_attention";
}

Gemma3Config read(const nlohmann::json& given) {
  nlohmann::json config = usual_entries();
  config.update(given);
  check_supported(ConfigReader(config));
  // The shared reader expects the entries of one kind of layer.
  nlohmann::json global = config;
  if (const auto rope = rope_of(config, "full_attention"); !rope.is_null()) {
    global["rope_parameters"] = rope;
  }
  const ConfigReader reader(global);
  Gemma3Config result = read_rms_decoder(reader, Gemma3Config());
  result.mlp_width = reader.whole("intermediate_size");
  result.query_scalar = reader.whole("query_pre_attn_scalar", result.query_scalar);
  result.window = reader.whole("sliding_window");
  result.local_theta = read_local_theta(config, result.context);
  check_size("layers", result.layers, LargestSizes::layers);
  result.global_every = read_pattern(reader, config, result.layers);
  check_config(result);
  check_layer_types(config, result.layers, "the first full_attention",
                    [&](std::int64_t layer) { return layer_type(result, layer); });
  result.head_size = head_size_of(result);
  return result;
}

}  // namespace

Gemma3Config gemma3_config_from(const nlohmann::json& config) {
  const ConfigReader reader(config);
  if (reader.text("model_type", "") != "gemma3") return read(config);
  check(reader.object("text_config").has_value(),
        "config.json: text_config is missing; expected the text model's configuration");
  reader.require("tie_word_embeddings", true);
  return read(config.at("text_config"));
}

nlohmann::json to_json(const Gemma3Config& config) {
  nlohmann::json result = write_rms_decoder(config);
  result.erase("hidden_act");
  result.update({
      {"model_type", "gemma3_text"},
      {"architectures", {"Gemma3ForCausalLM"}},
      {"hidden_activation", kActivation},
      {"intermediate_size", config.mlp_width},
      {"query_pre_attn_scalar", config.query_scalar},
      {"sliding_window", config.window},
      {"sliding_window_pattern", config.global_every},
      {"rope_local_base_freq", config.local_theta},
  });
  // Transformers' default is a token.
  if (!config.padding_id) result["pad_token_id"] = nullptr;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    result["layer_types"].push_back(layer_type(config, i));
  }
  return result;
}

void check_config(const Gemma3Config& config) {
  check_rms_decoder(config);
  // Transformers refuses such a model even if it names a head size.
  check(config.width % config.heads == 0, "width is {}; expected a multiple of the {} heads",
        config.width, config.heads);
  check_size("query_pre_attn_scalar", config.query_scalar, LargestSizes::width);
  check_size("sliding_window", config.window, LargestSizes::context);
  check_size("sliding_window_pattern", config.global_every, LargestSizes::layers + 1);
  check_rope(config.local_rope(), head_size_of(config));
}

TransformerShape shape_of(const Gemma3Config& config) {
  TransformerShape shape = rms_decoder_shape(config);
  shape.windows.tokens = config.window;
  for (std::int64_t i = 0; i < config.layers; ++i) shape.windows.layers += config.is_local(i);
  shape.qk_norm = true;
  return shape;
}

}  // namespace tessera
