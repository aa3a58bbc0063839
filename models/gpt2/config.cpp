#include "models/gpt2/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/config_reader.h"
#include "runtime/check.h"

namespace tessera {
namespace {

GeluForm read_gelu(const ConfigReader& reader) {
  const std::string name = reader.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return GeluForm::tanh;
  check(name == enum_name(GeluForm::exact),
        "config.json: activation_function is {}; expected 'gelu_new' or 'gelu'", excerpt(name));
  return GeluForm::exact;
}

}  // namespace

const Presets<Gpt2Config>& gpt2_presets() {
  // Radford et al. 2019, table 2.
  static const Presets<Gpt2Config> presets = {
      {"gpt2", {.layers = 12, .heads = 12, .width = 768}},
      {"gpt2-medium", {.layers = 24, .heads = 16, .width = 1024}},
      {"gpt2-large", {.layers = 36, .heads = 20, .width = 1280}},
      {"gpt2-xl", {.layers = 48, .heads = 25, .width = 1600}},
      {"gpt2-mini", {.context = 256, .layers = 4, .heads = 4, .width = 256}},
  };
  return presets;
}

Gpt2Config gpt2_config_from(const nlohmann::json& config) {
  const ConfigReader reader(config);
  // These variants would load and silently compute something else.
  reader.require("tie_word_embeddings", true);
  reader.require("scale_attn_weights", true);
  reader.require("scale_attn_by_inverse_layer_idx", false);
  const Gpt2Config result{
      .vocab_size = reader.whole("vocab_size"),
      .context = reader.whole("n_positions"),
      .layers = reader.whole("n_layer"),
      .heads = reader.whole("n_head"),
      .width = reader.whole("n_embd"),
      .dropout = reader.number("resid_pdrop", 0.0),
      .norm_epsilon = reader.number("layer_norm_epsilon", 1e-5),
      .gelu = read_gelu(reader),
  };
  check_config(result);
  const std::int64_t inner = 4 * result.width;
  check(reader.number("n_inner", static_cast<double>(inner)) == static_cast<double>(inner),
        "config.json: n_inner is {}; expected 4 * n_embd = {}", reader.number("n_inner", 0.0),
        inner);
  return result;
}

nlohmann::json to_json(const Gpt2Config& config) {
  // Without these keys Transformers assumes 50256, which a smaller vocabulary does not have.
  constexpr std::int64_t kEndOfText = 50256;
  const nlohmann::json end_of_text =
      config.vocab_size > kEndOfText ? nlohmann::json(kEndOfText) : nlohmann::json();
  return {
      {"model_type", "gpt2"},
      {"architectures", {"GPT2LMHeadModel"}},
      {"vocab_size", config.vocab_size},
      {"n_positions", config.context},
      {"n_embd", config.width},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_inner", nullptr},
      {"activation_function", enum_name(config.gelu)},
      {"layer_norm_epsilon", config.norm_epsilon},
      {"initializer_range", 0.02},
      {"embd_pdrop", config.dropout},
      {"resid_pdrop", config.dropout},
      {"attn_pdrop", 0.0},
      {"bos_token_id", end_of_text},
      {"eos_token_id", end_of_text},
      {"tie_word_embeddings", true},
      // AutoTokenizer then takes tokenizer.json as it is, instead of GPT-2's own tokenizer class.
      {"tokenizer_class", "PreTrainedTokenizerFast"},
  };
}

void check_config(const Gpt2Config& config) {
  check_sizes(config);
  check(config.width % config.heads == 0, "width is {}; expected a multiple of the {} heads",
        config.width, config.heads);
  check(config.dropout >= 0.0 && config.dropout < 1.0,
        "dropout is {}; expected at least 0 and less than 1", config.dropout);
  check(std::isfinite(config.norm_epsilon) && config.norm_epsilon > 0.0,
        "layer_norm_epsilon is {}; expected a positive number", config.norm_epsilon);
}

TransformerShape shape_of(const Gpt2Config& config) {
  return {.vocab_size = config.vocab_size,
          .context = config.context,
          .layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.heads,
          .head_size = config.width / config.heads,
          .mlp_width = 4 * config.width,
          .layout = WeightLayout::in_out};
}

}  // namespace tessera
