#include "models/qwen3_moe/model.h"

#include <catch2/catch.hpp>
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
using test::TemporaryDirectory;
using test::WholeModel;

std::string refusal(const std::string& key, const json& value) {
  return test::refusal("qwen3_moe/odd", key, value);
}

void write_model(const TemporaryDirectory& folder, const NamedTensors& weights) {
  write_file_atomically(folder / "config.json",
                        read_text_file(golden_folder("qwen3_moe/typical") / "config.json"));
  write_safetensors(folder / "model.safetensors", weights);
}

}  // namespace

TEST_CASE("nearly all parameters of Qwen3-30B-A3B are its experts'") {
  const test::Rank rank;
  const auto model = make_model(model_preset("qwen3-30b-a3b"));
  std::int64_t of_experts = 0;
  for (const Parameter& parameter : parameters_of(*model)) {
    if (parameter.name().find(".experts.") != std::string::npos) of_experts += parameter.numel();
  }
  CHECK(of_experts == 48LL * 128 * 3 * 2048 * 768);
  CHECK(model->units().size() == 50);
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
  CHECK(to_json(qwen3_moe_config_from(config)) ==
        make_model(model_preset("qwen3-30b-a3b"))->config());
}

TEST_CASE("both dialects of a Qwen3-MoE's config.json give the same model") {
  const json config = test::golden_config("qwen3_moe/odd");
  json old = config;
  old["num_experts"] = old["num_local_experts"];
  old.erase("num_local_experts");
  old["rope_theta"] = old["rope_parameters"]["rope_theta"];
  old.erase("rope_parameters");
  const json written = to_json(qwen3_moe_config_from(config));
  CHECK(to_json(qwen3_moe_config_from(old)) == written);
  CHECK(to_json(qwen3_moe_config_from(written)) == written);
  CHECK(written.at("num_experts") == 7);
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
  const auto tiny = test::tiny<Qwen3MoeConfig>("qwen3-moe-mini");
  Qwen3MoeConfig config = tiny;
  config.dense_layers = {3, 70};
  config.experts_every = 2;
  std::vector<bool> layers;
  for (std::int64_t i = 0; i < 6; ++i) layers.push_back(config.has_experts(i));
  CHECK(layers == std::vector<bool>{false, true, false, false, false, true});
  config.layers = 6;
  CHECK(shape_of(config).experts.layers == 2);
  config.experts_every = 7;
  CHECK(Qwen3Moe(config).routers() == nullptr);
  CHECK(Qwen3Moe(tiny).routers()->layers() == 2);
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
  for (const auto& from : {golden_folder("qwen3_moe/typical"), folder.path()}) {
    test::check_reads_parts(from, whole, /*from_part=*/7);
  }
}

TEST_CASE("a missing or misshapen expert is named by its own tensor") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  NamedTensors weights = test::golden_weights("qwen3_moe/typical");
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

TEST_CASE("a router's bias for other experts is refused") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  NamedTensors weights = test::golden_weights("qwen3_moe/typical");
  weights.emplace_back("model.layers.1.mlp.gate.e_score_correction_bias",
                       Tensor::zeros({7}, DType::f32));
  write_model(folder, weights);
  REQUIRE_THROWS_WITH(
      make_pretrained(folder.path()),
      Contains("layers.1.mlp.gate.e_score_correction_bias has 7 values; expected 8"));
}

}  // namespace tessera
