// Adapters against PEFT on the same factors, and the layers that get one. tests/golden/README.md describes the files.
#include "models/adapters.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "models/peft.h"
#include "runtime/file.h"
#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::error_of;
using test::golden_folder;
using test::relative_error;
using test::TemporaryDirectory;
using test::to_doubles;
using test::WholeModel;

constexpr double kTolerance = 1e-5;

struct GoldenAdapter {
  std::string adapter, base;
};
const std::vector<GoldenAdapter> kGolden = {{"adapters/gpt2", "gpt2/plain"},
                                            {"adapters/llama", "llama/llama3"}};

std::unique_ptr<LanguageModel> with_adapters(std::unique_ptr<LanguageModel> model,
                                             const AdapterOptions& options) {
  add_adapters(*model, options);
  return model;
}

/// A golden model with an adapter.
WholeModel adapted(const fs::path& base, const fs::path& adapter) {
  WholeModel whole(with_adapters(make_pretrained(base), read_adapter(adapter).options));
  whole.strategy->write_masters([&] {
    load_parameters(base, whole.shards());
    load_adapter(adapter, whole.shards());
  });
  return whole;
}

/// The names of the layers that have an adapter with these options.
std::set<std::string> adapted_layers(const std::string& preset, const AdapterOptions& options) {
  const auto model = with_adapters(make_model(model_preset(preset)), options);
  std::set<std::string> layers;
  for (const Parameter& weight : adaptable_weights(*model)) {
    if (weight.adapter() != nullptr) layers.insert(layer_name(weight.name()));
  }
  return layers;
}

std::size_t layers_in_all(const std::string& preset) {
  return adapted_layers(preset, {.rank = 1}).size();
}

nlohmann::json config_in(const fs::path& folder) {
  return nlohmann::json::parse(read_text_file(folder / "adapter_config.json"));
}

}  // namespace

TEST_CASE("adapters of PEFT: logits, loss and gradients agree with PEFT") {
  const test::Rank rank;
  for (const GoldenAdapter& golden : kGolden) {
    CAPTURE(golden.adapter);
    const fs::path folder = golden_folder(golden.adapter);
    const WholeModel whole = adapted(golden_folder(golden.base), folder);
    const SafetensorsFile expected(folder / "expected.safetensors");
    const Tensor inputs = expected.tensor("input_ids").clone();
    const Tensor targets = expected.tensor("targets").clone();
    {
      const NoGradient no_gradient;
      CHECK(relative_error(to_doubles(whole.model->logits(inputs).data()),
                           to_doubles(expected.tensor("logits"))) < kTolerance);
    }
    CHECK(whole.differentiate(inputs, targets) ==
          Approx(to_doubles(expected.tensor("loss")).front()).epsilon(kTolerance));
    std::size_t gradients = 0;
    for (const Shard& shard : whole.shards()) {
      const std::string name = "grad." + shard.parameter.name();
      CAPTURE(name);
      REQUIRE(shard.parameter.trainable() == expected.contains(name));
      if (!shard.parameter.trainable()) continue;
      CHECK(relative_error(to_doubles(shard.gradient), to_doubles(expected.tensor(name))) <
            kTolerance);
      ++gradients;
    }
    CHECK(gradients + 4 == expected.tensors().size());
  }
}

TEST_CASE(
    "adapters of PEFT: one that is written has the configuration and tensors that were read") {
  const test::Rank rank;
  for (const GoldenAdapter& golden : kGolden) {
    CAPTURE(golden.adapter);
    const TemporaryDirectory out;
    const fs::path folder = golden_folder(golden.adapter);
    const AdapterFiles files = read_adapter(folder);
    const WholeModel whole = adapted(golden_folder(golden.base), folder);
    save_adapter(out / "adapter", *whole.model, files.options, files.base, *whole.strategy);
    CHECK(files.base == "tests/golden/" + golden.base);
    const nlohmann::json before = config_in(folder), after = config_in(out / "adapter");
    for (const auto& [key, value] : after.items()) {
      CAPTURE(key);
      CHECK(before.at(key) == value);
    }
    const SafetensorsFile first(folder / "adapter_model.safetensors");
    const SafetensorsFile second(out / "adapter/adapter_model.safetensors");
    REQUIRE(first.tensors().size() == second.tensors().size());
    for (const auto& [name, info] : first.tensors()) {
      CAPTURE(name);
      CHECK(test::same_bits(first.tensor(name), second.tensor(name)));
    }
  }
}

TEST_CASE("adapters: patterns name layers, or ends of their names behind a dot") {
  const auto layers = [](const std::string& targets) {
    return adapted_layers("llama3-mini", {.rank = 2, .targets = targets});
  };
  const std::size_t blocks = static_cast<std::size_t>(shape_of(model_preset("llama3-mini")).layers);
  CHECK(layers("").size() == 7 * blocks);
  CHECK(layers("q_proj,v_proj").size() == 2 * blocks);
  CHECK(layers("*.layers.1.*").size() == 7);
  CHECK(layers("layers.1.mlp.*, self_attn.o_proj").size() == 3 + blocks);
  CHECK(layers("model.layers.0.mlp.down_proj") ==
        std::set<std::string>{"model.layers.0.mlp.down_proj"});
  CHECK(layers("*_proj") == layers(""));

  CHECK(layers_in_all("gpt2-mini") ==
        4 * static_cast<std::size_t>(shape_of(model_preset("gpt2-mini")).layers));
  // Experts are layers; routers, norms and embeddings are not.
  for (const std::string& layer : adapted_layers("qwen3-moe-mini", {.rank = 1})) {
    CAPTURE(layer);
    CHECK((layer.ends_with("_proj") && layer.find("router") == layer.npos));
  }
}

TEST_CASE("adapters: a pattern of no layer is refused with the nearest, and nothing changes") {
  const auto model = make_model(model_preset("llama3-mini"));
  const auto refusal = [&](const std::string& targets) {
    return error_of([&] { add_adapters(*model, {.rank = 2, .targets = targets}); });
  };
  CHECK_THAT(refusal("q_proj,q_prj"),
             Contains("'q_prj' matches no linear layer of this model; did you mean 'q_proj'?"));
  CHECK_THAT(refusal("x*y"), Contains("its layers are down_proj, gate_proj, k_proj, o_proj, "
                                      "q_proj, up_proj, v_proj"));
  CHECK_THAT(refusal("lm_head"), Contains("matches no linear layer"));
  CHECK_THAT(refusal("proj"), Contains("matches no linear layer"));
  CHECK_FALSE(has_adapters(*model));
  for (const Parameter& parameter : parameters_of(*model)) CHECK(parameter.trainable());
}

TEST_CASE(
    "adapters: A starts uniform and B with zeros, all else is frozen, and scalings are as "
    "published") {
  const test::Rank rank;
  const WholeModel whole(
      with_adapters(make_model(test::tiny("llama3-mini")), {.rank = 4, .alpha = 12.0}));
  std::int64_t factors = 0;
  for (const Shard& shard : whole.shards()) {
    CAPTURE(shard.parameter.name());
    CHECK(shard.parameter.trainable() == shard.parameter.in_adapter());
    if (!shard.parameter.in_adapter()) continue;
    ++factors;
    const std::vector<double> values = to_doubles(shard.data);
    const bool is_a = shard.parameter.name().ends_with(".lora_A.weight");
    const double bound = 1.0 / std::sqrt(static_cast<double>(shard.parameter.shape()[1]));
    double most = 0.0;
    for (const double value : values) most = std::max(most, std::abs(value));
    CHECK((is_a ? most <= bound && most > 0.8 * bound : most == 0.0));
  }
  CHECK(factors == 2 * static_cast<std::int64_t>(adaptable_weights(*whole.model).size()));
  CHECK(scaling_factor({.rank = 4, .alpha = 12.0}) == 3.0);
  CHECK(scaling_factor({.rank = 4, .alpha = 12.0, .scaling = AdapterScaling::rank_stabilized}) ==
        6.0);
}

TEST_CASE("adapters of PEFT: files that ask for something else are refused in one line") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const auto refusal = [&](const std::string& key, const nlohmann::json& value) {
    const fs::path copy = folder / "copy";
    fs::remove_all(copy);
    fs::copy(golden_folder("adapters/llama"), copy);
    nlohmann::json config = config_in(copy);
    config[key] = value;
    std::ofstream(copy / "adapter_config.json") << config.dump();
    const std::string error = error_of([&] { read_adapter(copy); });
    CHECK((error == "no error" || error.starts_with(copy.string())));
    return error;
  };
  CHECK_THAT(refusal("peft_type", "IA3"), Contains("peft_type is \"IA3\"; expected \"LORA\""));
  CHECK_THAT(refusal("use_dora", true), Contains("use_dora is set; expected false"));
  CHECK_THAT(refusal("bias", "all"), Contains("bias is \"all\"; expected \"none\""));
  CHECK_THAT(refusal("modules_to_save", {"lm_head"}), Contains("modules_to_save is"));
  CHECK_THAT(refusal("rank_pattern", {{"q_proj", 8}}), Contains("rank_pattern is"));
  CHECK_THAT(refusal("r", 0), Contains("r is 0; expected at least 1"));
  CHECK(refusal("target_modules", "all-linear") == "no error");
  CHECK_THAT(error_of([&] { read_adapter(folder / "none"); }), Contains("no adapter here"));

  // A rank that the tensors do not have.
  AdapterOptions options = read_adapter(golden_folder("adapters/llama")).options;
  options.rank = 5;
  const WholeModel whole(with_adapters(make_pretrained(golden_folder("llama/llama3")), options));
  CHECK_THAT(error_of([&] { load_adapter(golden_folder("adapters/llama"), whole.shards()); }),
             Contains("q_proj.lora_A.weight has shape [3, 32], expected [5, 32]"));
}

TEST_CASE("adapters: the files of a model are found by its adapter's configuration") {
  const TemporaryDirectory folder;
  const fs::path adapter = folder / "adapter", base = golden_folder("llama/llama3");
  fs::copy(golden_folder("adapters/llama"), adapter);
  const auto name_base = [&](const std::string& name) {
    nlohmann::json config = config_in(adapter);
    config["base_model_name_or_path"] = name;
    std::ofstream(adapter / "adapter_config.json") << config.dump();
  };
  name_base(base.string());
  CHECK(find_model(adapter, {}).model == base);
  CHECK(find_model(adapter, {}).adapter == adapter);
  CHECK(find_model(base, {}).adapter.empty());
  CHECK(find_model(base, {}).own() == base);
  name_base((folder / "gone").string());
  CHECK_THAT(
      error_of([&] { find_model(adapter, {}); }),
      Contains("the adapter's base is not there") && Contains("gone") && Contains("--adapter"));
  CHECK(find_model(base, adapter).own() == adapter);
  name_base("");
  CHECK_THAT(error_of([&] { find_model(adapter, {}); }), Contains("names no base model"));
}

}  // namespace tessera
