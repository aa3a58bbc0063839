#include "models/registry.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("every family stands at its place in the table") {
  REQUIRE(model_families().size() == std::variant_size_v<Hyperparameters>);
  for (const ModelFamily& family : model_families()) {
    CAPTURE(family.model_types);
    REQUIRE_FALSE(family.presets.empty());
    for (const auto& preset : family.presets) {
      CHECK(&family_of(model_preset(preset.name)) == &family);
    }
    for (const std::string_view type : family.model_types) {
      CHECK(&family_of(nlohmann::json{{"model_type", type}}) == &family);
    }
  }
}

TEST_CASE("no two families share a preset or a model type") {
  std::set<std::string_view> types;
  std::size_t count = 0;
  for (const ModelFamily& family : model_families()) {
    types.insert(family.model_types.begin(), family.model_types.end());
    count += family.model_types.size();
  }
  REQUIRE(types.size() == count);
  const std::vector<std::string_view> presets = model_presets();
  REQUIRE(std::set<std::string_view>(presets.begin(), presets.end()).size() == presets.size());
}

TEST_CASE("a preset's config.json reads back to the same model") {
  for (const std::string_view name : model_presets()) {
    CAPTURE(name);
    const auto model = make_model(model_preset(name));
    const nlohmann::json config = model->config();
    const Hyperparameters read = family_of(config).config_from(config);
    CHECK(make_model(read)->config() == config);
  }
}

TEST_CASE("an unknown preset or model type is refused with those that exist") {
  REQUIRE_THROWS_WITH(model_preset("gpt-2"), Contains("'gpt-2'") && Contains("gpt2-mini"));
  REQUIRE_THROWS_WITH(family_of(nlohmann::json{{"model_type", "bert"}}),
                      Contains("bert") && Contains("gpt2"));
  REQUIRE_THROWS_WITH(family_of(nlohmann::json::object()), Contains("model_type"));
}

TEST_CASE("the shape of a preset has the published sizes") {
  // Radford et al. 2019, table 2.
  const TransformerShape xl = shape_of(model_preset("gpt2-xl"));
  CHECK(xl.layers == 48);
  CHECK(xl.width == 1600);
  CHECK(xl.heads * xl.head_size == 1600);
  CHECK(xl.kv_heads == xl.heads);
  CHECK(xl.mlp_width == 6400);
  CHECK(xl.context == 1024);
  CHECK(xl.vocab_size == 50257);
}

TEST_CASE("a layer's number is read from a tensor's name") {
  const TensorNames names = family_of(model_preset("gpt2")).tensor_names;
  CHECK(layer_of("transformer.h.3.ln_1.weight", names) == 3);
  CHECK(layer_of("h.11.attn.bias", names) == 11);
  CHECK_FALSE(layer_of("transformer.wte.weight", names).has_value());
  CHECK_FALSE(layer_of("transformer.h.x.weight", names).has_value());
  CHECK_FALSE(layer_of("path.3.weight", names).has_value());
  CHECK_FALSE(layer_of("h.3", names).has_value());
}

}  // namespace
}  // namespace tessera
