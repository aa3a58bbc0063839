#include "models/qwen3_moe/model.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cast/op.h"
#include "models/routers.h"
#include "runtime/file.h"
#include "runtime/safetensors.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::golden_folder;
using test::index_tensor;
using test::TemporaryDirectory;
using test::WholeModel;

/// Layer 0 is dense.
const Qwen3MoeConfig kTiny{.vocab_size = 53,
                           .context = 12,
                           .layers = 3,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_size = 10,
                           .width = 24,
                           .mlp_width = 40,
                           .experts = 5,
                           .experts_per_token = 2,
                           .expert_width = 9,
                           .dense_layers = {0},
                           .rope = {.theta = 100.0}};

json golden_config() {
  return json::parse(read_text_file(golden_folder("qwen3_moe/odd") / "config.json"));
}

std::string refusal(const std::string& key, const json& value) {
  json config = golden_config();
  config[key] = value;
  try {
    qwen3_moe_config_from(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

NamedTensors golden_weights() {
  const SafetensorsFile file(golden_folder("qwen3_moe/typical") / "model.safetensors");
  NamedTensors weights;
  for (const auto& [name, info] : file.tensors()) weights.emplace_back(name, file.tensor(name));
  return weights;
}

void write_model(const TemporaryDirectory& folder, const NamedTensors& weights) {
  write_file_atomically(folder / "config.json",
                        read_text_file(golden_folder("qwen3_moe/typical") / "config.json"));
  write_safetensors(folder / "model.safetensors", weights);
}

}  // namespace

TEST_CASE("nearly all parameters of Qwen3-30B-A3B are its experts'") {
  const test::Rank rank;
  const Qwen3Moe model(qwen3_moe_preset("qwen3-30b-a3b"));
  std::int64_t of_experts = 0;
  for (const Parameter& parameter : parameters_of(model)) {
    if (parameter.name().find(".experts.") != std::string::npos) of_experts += parameter.numel();
  }
  CHECK(of_experts == 48LL * 128 * 3 * 2048 * 768);
  CHECK(model.units().size() == 50);
  REQUIRE_THROWS_WITH(qwen3_moe_preset("qwen3"), Contains("qwen3-moe-mini"));
}

TEST_CASE("the hub's config.json of Qwen3-30B-A3B gives the preset") {
  const json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                       {"attention_bias", false},
                       {"attention_dropout", 0.0},
                       {"bos_token_id", 151643},
                       {"decoder_sparse_step", 1},
                       {"eos_token_id", 151645},
                       {"head_dim", 128},
                       {"hidden_act", "silu"},
                       {"hidden_size", 2048},
                       {"initializer_range", 0.02},
                       {"intermediate_size", 6144},
                       {"max_position_embeddings", 40960},
                       {"max_window_layers", 48},
                       {"mlp_only_layers", json::array()},
                       {"model_type", "qwen3_moe"},
                       {"moe_intermediate_size", 768},
                       {"norm_topk_prob", true},
                       {"num_attention_heads", 32},
                       {"num_experts", 128},
                       {"num_experts_per_tok", 8},
                       {"num_hidden_layers", 48},
                       {"num_key_value_heads", 4},
                       {"output_router_logits", false},
                       {"rms_norm_eps", 1e-06},
                       {"rope_scaling", nullptr},
                       {"rope_theta", 1000000.0},
                       {"router_aux_loss_coef", 0.001},
                       {"sliding_window", nullptr},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "bfloat16"},
                       {"use_sliding_window", false},
                       {"vocab_size", 151936}};
  CHECK(to_json(qwen3_moe_config_from(config)) == to_json(qwen3_moe_preset("qwen3-30b-a3b")));
}

TEST_CASE("both dialects of a Qwen3-MoE's config.json give the same model") {
  const json config = golden_config();
  json old = config;
  old["num_experts"] = old["num_local_experts"];
  old.erase("num_local_experts");
  old["rope_theta"] = old["rope_parameters"]["rope_theta"];
  old.erase("rope_parameters");
  const json written = to_json(qwen3_moe_config_from(config));
  CHECK(to_json(qwen3_moe_config_from(old)) == written);
  CHECK(to_json(qwen3_moe_config_from(written)) == written);
  CHECK(written.at("num_experts") == 7);
  for (const auto& [key, value] : written.items()) {
    CAPTURE(key);
    if (key == "rope_theta" || key == "rope_scaling" || !config.contains(key)) continue;
    CHECK(value == config.at(key));
  }
  // Transformers' defaults. Without head_dim a head has width / heads channels.
  json short_one = config;
  for (const char* key : {"head_dim", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers",
                          "moe_intermediate_size", "num_experts_per_tok"}) {
    short_one.erase(key);
  }
  short_one["num_local_experts"] = 16;
  const Qwen3MoeConfig read = qwen3_moe_config_from(short_one);
  CHECK(read.head_size == 6);
  CHECK_FALSE(read.normalized_weights);
  CHECK(read.experts_every == 1);
  CHECK(read.expert_width == 768);
  CHECK(read.experts_per_token == 8);
}

TEST_CASE("the layers with experts are those that Transformers gives them") {
  Qwen3MoeConfig config = kTiny;
  config.dense_layers = {3, 70};
  config.experts_every = 2;
  std::vector<bool> layers;
  for (std::int64_t i = 0; i < 6; ++i) layers.push_back(config.has_experts(i));
  CHECK(layers == std::vector<bool>{false, true, false, false, false, true});
  config.layers = 6;
  CHECK(shape_of(config).experts.layers == 2);
  config.experts_every = 7;
  CHECK(Qwen3Moe(config).routers() == nullptr);
  CHECK(Qwen3Moe(kTiny).routers()->layers() == 2);
}

TEST_CASE("a Qwen3-MoE's config.json that would compute something else is refused by its key") {
  CHECK_THAT(refusal("num_experts", 8), Contains("num_experts and num_local_experts"));
  CHECK_THAT(refusal("num_local_experts", 0), Contains("experts is 0; expected 1 to 1024"));
  CHECK_THAT(refusal("num_local_experts", nullptr), Contains("num_experts is missing"));
  CHECK_THAT(refusal("num_experts_per_tok", 8),
             Contains("experts_per_token is 8; expected 1 to the number of experts, 7"));
  CHECK_THAT(refusal("moe_intermediate_size", 1 << 20),
             Contains("experts * expert_width is 7340032"));
  CHECK_THAT(refusal("decoder_sparse_step", 0), Contains("decoder_sparse_step is 0"));
  CHECK_THAT(refusal("mlp_only_layers", {0, "one"}), Contains("a list of whole numbers"));
  CHECK_THAT(refusal("mlp_only_layers", 3), Contains("a list of whole numbers"));
  CHECK_THAT(refusal("mlp_only_layers", {-1}), Contains("names layer -1"));
}

TEST_CASE("stacked experts are read as the experts one by one, and a rank reads its own part") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const WholeModel whole(golden_folder("qwen3_moe/typical"));
  NamedTensors weights;
  for (const Shard& shard : whole.shards()) {
    weights.emplace_back(shard.parameter.name(), shard.data.to_host());
  }
  write_model(folder, weights);
  const WholeModel stacked(folder.path());
  for (const Shard& shard : stacked.shards()) {
    CAPTURE(shard.parameter.name());
    CHECK(test::same_bits(shard.data, whole.shard(shard.parameter.name()).data));
  }
  // Parts that begin and end inside an expert.
  std::vector<Shard> shards = whole.shards();
  for (Shard& shard : shards) {
    shard.first = shard.parameter.numel() / 7;
    shard.data = Tensor::zeros({shard.parameter.numel() / 2}, DType::f32);
  }
  for (const auto& from : {golden_folder("qwen3_moe/typical"), folder.path()}) {
    load_parameters(from, shards);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const Tensor flat = whole.shards()[i].data.reshape({shards[i].parameter.numel()});
      const std::int64_t end = shards[i].first + shards[i].data.numel();
      REQUIRE(test::same_bits(shards[i].data, flat.slice(shards[i].first, end)));
      shards[i].data.zero();
    }
  }
}

TEST_CASE("a missing or misshapen expert is named by its own tensor") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  NamedTensors weights = golden_weights();
  for (auto& [name, tensor] : weights) {
    if (name == "model.layers.0.mlp.experts.3.up_proj.weight") name = "model.layers.0.other";
    if (name == "model.layers.1.mlp.experts.7.down_proj.weight") {
      tensor = tensor.reshape({24, 32});
    }
  }
  write_model(folder, weights);
  REQUIRE_THROWS_WITH(
      make_pretrained(folder.path()),
      Contains("'model.layers.0.mlp.experts.3.up_proj.weight' is missing") &&
          Contains("'model.layers.1.mlp.experts.7.down_proj.weight' has shape [24, 32], expected "
                   "[32, 24]") &&
          Contains("model.layers.0.other\" does not belong"));
}

TEST_CASE("the biases of routers are saved with the model, and change its choices") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const WholeModel whole(golden_folder("qwen3_moe/typical"));
  const Tensor ids = index_tensor({2, 16}, 97, "inputs");
  const auto logits_of = [&](const WholeModel& of) {
    const NoGradient no_gradient;
    return of.model->logits(ids).data();
  };
  const Tensor without = logits_of(whole);
  const std::vector<float> bias = {0.5f, -0.25f, 0, 0, 0.125f, -0.5f, 1.0f, 0};
  whole.model->routers()->set_bias(0, bias);
  whole.model->routers()->set_bias(1, std::vector<float>(8, 0.0f));
  const Tensor with = logits_of(whole);
  CHECK_FALSE(test::same_bits(with, without));
  save_pretrained(folder.path(), *whole.model, *whole.strategy);
  const WholeModel again(folder.path());
  CHECK(again.model->routers()->biases()[0].values == bias);
  CHECK(test::same_bits(logits_of(again), with));
  const SafetensorsFile file(folder / "model.safetensors");
  CHECK(file.contains("model.layers.0.mlp.gate.e_score_correction_bias"));

  NamedTensors weights = golden_weights();
  weights.emplace_back("model.layers.1.mlp.gate.e_score_correction_bias",
                       Tensor::zeros({7}, DType::f32));
  write_model(folder, weights);
  REQUIRE_THROWS_WITH(
      make_pretrained(folder.path()),
      Contains("layers.1.mlp.gate.e_score_correction_bias has 7 values; expected 8"));
}

}  // namespace tessera
