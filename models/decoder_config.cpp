#include "models/decoder_config.h"

#include <nlohmann/json.hpp>
#include <string>

#include "kernels/router/op.h"
#include "models/fp8_form.h"
#include "models/transformer_shape.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {

void check_supported_decoder(const ConfigReader& reader, const char* key,
                             const std::string& expected) {
  const std::string activation = reader.text(key, expected);
  check(activation == expected, "config.json: {} is {}; expected '{}'", key, excerpt(activation),
        expected);
  check_weights_form(reader);
}

void check_full_attention(const nlohmann::json& config) {
  ConfigReader(config).require("use_sliding_window", false);
  const auto types = config.find("layer_types");
  if (types == config.end() || types->is_null()) return;
  for (const nlohmann::json& layer : *types) {
    check(layer == "full_attention",
          "config.json: layer_types names another layer than full_attention, the only supported "
          "one");
  }
}

void check_layer_types(const nlohmann::json& config, std::int64_t layers,
                       std::string_view other_keys,
                       const std::function<std::string_view(std::int64_t layer)>& type_of) {
  const auto types = config.find("layer_types");
  if (types == config.end() || types->is_null()) return;
  check(types->is_array() && std::ssize(*types) == layers,
        "config.json: layer_types is {}; expected a list of {} layers", excerpt(types->dump()),
        layers);
  for (std::int64_t i = 0; i < layers; ++i) {
    const nlohmann::json& type = (*types)[static_cast<std::size_t>(i)];
    check(type == type_of(i), "config.json: layer_types has {} for layer {}; expected {}, by {}",
          excerpt(type.is_string() ? type.get<std::string>() : type.dump()), i, type_of(i),
          other_keys);
  }
}

void check_heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size) {
  check_size("kv_heads", kv_heads, LargestSizes::heads);
  check(heads % kv_heads == 0, "heads is {}; expected a multiple of the {} kv_heads", heads,
        kv_heads);
  check_size("head_size", head_size, LargestSizes::heads);
  check(head_size % 2 == 0, "head_size is {}; expected an even number", head_size);
  check_size("heads * head_size", heads * head_size, LargestSizes::width);
}

void check_experts(std::int64_t experts, std::int64_t experts_per_token,
                   std::int64_t expert_width) {
  check_size("experts", experts, kMostExperts);
  check(1 <= experts_per_token && experts_per_token <= experts,
        "experts_per_token is {}; expected 1 to the number of experts, {}", experts_per_token,
        experts);
  check_size("expert_width", expert_width, LargestSizes::width);
  check_size("experts * expert_width", experts * expert_width, LargestSizes::expert_channels);
}

std::optional<std::int64_t> read_padding_id(const ConfigReader& reader, std::int64_t vocab_size) {
  constexpr const char* kKey = "pad_token_id";
  if (!reader.has(kKey)) return std::nullopt;
  const std::int64_t id = reader.whole(kKey);
  check(-vocab_size <= id && id < vocab_size,
        "config.json: {} is {}; expected a token below vocab_size, {}", kKey, id, vocab_size);
  return id < 0 ? id + vocab_size : id;
}

}  // namespace tessera
