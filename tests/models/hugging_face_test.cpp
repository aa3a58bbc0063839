#include "models/hugging_face.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
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
using test::TemporaryDirectory;
using test::WholeModel;

const std::string kPrefix = "transformer.";
const std::string kSomeWeight = "transformer.h.1.attn.c_attn.weight";

const std::string kGolden = "gpt2/plain";

void write_config(const std::filesystem::path& folder, const json& config) {
  std::ofstream(folder / "config.json") << config.dump();
}

void write_model(const std::filesystem::path& folder, const NamedTensors& weights) {
  write_config(folder, test::golden_config(kGolden));
  write_safetensors(folder / "model.safetensors", weights);
}

/// Applies `change` to each (name, tensor) of the golden weights.
template <typename Change>
NamedTensors changed_weights(Change change) {
  NamedTensors weights = test::golden_weights(kGolden);
  for (auto& [name, tensor] : weights) change(name, tensor);
  return weights;
}

void require_golden_weights(const std::vector<Shard>& shards) {
  const SafetensorsFile file(golden_folder(kGolden) / "model.safetensors");
  REQUIRE(shards.size() == file.tensors().size());
  for (const Shard& shard : shards) {
    CAPTURE(shard.parameter.name());
    REQUIRE(test::same_bits(shard.data, file.tensor(shard.parameter.name())));
  }
}

std::string config_error(const std::string& key, const json& value) {
  return test::refusal(kGolden, key, value);
}

}  // namespace

TEST_CASE("every family's folder comes back as it was") {
  const test::Rank rank;
  const std::string name =
      GENERATE("gpt2/plain", "gpt2/exact_gelu", "llama/dynamic", "llama/longrope_short",
               "llama/longrope_long", "llama/mistral", "llama/qwen2_window", "llama/qwen3_window",
               "llama/olmo2", "llama/olmo2_odd", "llama/llama3", "llama/odd", "llama/one_kv_head",
               "llama/qwen2", "llama/qwen3", "llama/qwen3_tied", "qwen3_moe/typical",
               "qwen3_moe/odd", "llama4/typical", "llama4/odd", "llama4/packed",
               "llama4/all_experts", "gemma3/typical", "gemma3/odd");
  CAPTURE(name);
  const TemporaryDirectory saved;
  const WholeModel whole(golden_folder(name));
  save_pretrained(saved.path(), *whole.model, *whole.strategy);
  const SafetensorsFile written(saved / "model.safetensors");
  const SafetensorsFile expected(golden_folder(name) / "model.safetensors");
  REQUIRE(written.tensors().size() == expected.tensors().size());
  for (const auto& [tensor, info] : expected.tensors()) {
    CAPTURE(tensor);
    CHECK(test::same_bits(written.tensor(tensor), expected.tensor(tensor)));
  }
  CHECK(written.metadata().at("format") == "pt");
  CHECK(WholeModel(saved.path()).model->config() == whole.model->config());
  // The entries that Transformers and this program both write have the same values.
  const json config = read_json_file(saved / "config.json"), original = test::golden_config(name);
  for (const auto& [key, value] : config.items()) {
    CAPTURE(key);
    if (key == "rope_theta" || key == "rope_scaling" || !original.contains(key)) continue;
    CHECK(value == original.at(key));
  }
}

TEST_CASE("the biases of routers are saved with the model, and change its choices") {
  const test::Rank rank;
  const std::string name = GENERATE("qwen3_moe/typical", "llama4/typical");
  CAPTURE(name);
  const TemporaryDirectory folder;
  const WholeModel whole(golden_folder(name));
  const Tensor ids = test::index_tensor({2, 16}, 97, "inputs");
  const auto logits_of = [&](const WholeModel& of) {
    const NoGradient no_gradient;
    return of.model->logits(ids).data();
  };
  const Tensor without = logits_of(whole);
  const auto experts = static_cast<std::size_t>(whole.model->shape().experts.count);
  std::vector<float> bias = {0.5f, -0.25f, 0.0f, -0.5f, 0.125f, -0.5f, 1.0f, 0.0f};
  bias.resize(experts);
  whole.model->routers()->set_bias(0, std::vector<float>(experts, 0.0f));
  whole.model->routers()->set_bias(1, bias);
  const Tensor with = logits_of(whole);
  CHECK_FALSE(test::same_bits(with, without));
  save_pretrained(folder.path(), *whole.model, *whole.strategy);
  const WholeModel again(folder.path());
  CHECK(again.model->routers()->biases()[1].values == bias);
  CHECK(test::same_bits(logits_of(again), with));
}

TEST_CASE("one error lists everything that does not fit") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  NamedTensors weights = changed_weights([](std::string& name, Tensor& tensor) {
    if (name == kSomeWeight) name = "transformer.h.1.attn.other.weight";
    if (name == "transformer.ln_f.bias") tensor = Tensor::zeros({31}, DType::f32);
    if (name == "transformer.ln_f.weight") tensor = Tensor::zeros({32}, DType::i32);
  });
  write_model(folder.path(), weights);
  REQUIRE_THROWS_WITH(
      make_pretrained(folder.path()),
      Contains("parameter 'transformer.h.1.attn.c_attn.weight' is missing") &&
          Contains("parameter 'transformer.ln_f.bias' has shape [31], expected [32]") &&
          Contains("parameter 'transformer.ln_f.weight' has dtype i32") &&
          Contains("transformer.h.1.attn.other.weight\" does not belong to this model"));
  // A long list is cut.
  weights.resize(2);
  weights.emplace_back("transformer.h.1.more", Tensor::zeros({1}, DType::f32));
  write_model(folder.path(), weights);
  REQUIRE_THROWS_WITH(make_pretrained(folder.path()), Contains("; and ") && Contains(" more; is"));
}

TEST_CASE("a saved config.json says all that Transformers needs") {
  const json config = Gpt2(gpt2_config_from(test::golden_config(kGolden))).config();
  for (const char* key : {"model_type", "architectures", "vocab_size", "n_positions", "n_embd",
                          "n_layer", "n_head", "embd_pdrop", "resid_pdrop", "attn_pdrop"}) {
    CAPTURE(key);
    REQUIRE(config.contains(key));
  }
  // Left out, they would mean 50256, which a small vocabulary does not have.
  REQUIRE(config.at("bos_token_id").is_null());
  REQUIRE(config.at("eos_token_id").is_null());
}

TEST_CASE("weights may be named as in the hub's first GPT-2 files") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  // No prefix, the causal masks stored as buffers, the tied head stored again.
  NamedTensors weights =
      changed_weights([](std::string& name, Tensor&) { name = name.substr(kPrefix.size()); });
  const Tensor mask = Tensor::zeros({1, 1, 32, 32}, DType::f32);
  weights.emplace_back("h.0.attn.bias", mask);
  weights.emplace_back("h.1.attn.bias", mask);
  weights.emplace_back("lm_head.weight", Tensor::zeros({97, 32}, DType::f32));
  write_model(folder.path(), weights);
  require_golden_weights(WholeModel(folder.path()).shards());
}

TEST_CASE("weights may be spread over several files") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  write_config(folder.path(), test::golden_config(kGolden));
  std::vector<NamedTensors> parts(2);
  json weight_map;
  for (const auto& entry : test::golden_weights(kGolden)) {
    const int part = entry.first.find("h.1") != std::string::npos ? 1 : 0;
    weight_map[entry.first] = "part" + std::to_string(part) + ".safetensors";
    parts[part].push_back(entry);
  }
  write_safetensors(folder / "part0.safetensors", parts[0]);
  write_safetensors(folder / "part1.safetensors", parts[1]);
  std::ofstream(folder / "model.safetensors.index.json") << json{{"weight_map", weight_map}}.dump();
  require_golden_weights(WholeModel(folder.path()).shards());

  std::ofstream(folder / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "../../secret.safetensors"}})";
  REQUIRE_THROWS_WITH(WholeModel(folder.path()), Contains("../../secret.safetensors"));
}

TEST_CASE("weights of 16 bits are widened") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const DType stored = GENERATE(DType::bf16, DType::f16);
  write_model(folder.path(), changed_weights([stored](std::string&, Tensor& tensor) {
                const Tensor narrow = Tensor::empty(tensor.shape(), stored);
                cast(narrow, tensor.clone());  // on the device
                tensor = narrow;
              }));
  const WholeModel whole(folder.path());
  const SafetensorsFile file(folder / "model.safetensors");
  for (const Shard& shard : whole.shards()) {
    REQUIRE(shard.data.dtype() == DType::f32);
    REQUIRE(test::to_doubles(shard.data) == test::to_doubles(file.tensor(shard.parameter.name())));
  }
}

TEST_CASE("a rank reads just its own part of a parameter") {
  const test::Rank rank;
  const WholeModel whole(golden_folder(kGolden));
  test::check_reads_parts(golden_folder(kGolden), whole, /*from_part=*/3);
}

TEST_CASE("of several ranks only the first writes") {
  const TemporaryDirectory folder;
  for (const int rank : {1, 0}) {
    RankContext context({.rank = rank, .world_size = 2, .threads = 1});
    const ContextGuard guard(context);
    const WholeModel whole(golden_folder(kGolden));
    save_pretrained(folder / "model", *whole.model, *whole.strategy);
    REQUIRE(std::filesystem::exists(folder / "model") == (rank == 0));
  }
}

TEST_CASE("weights that do not fit are refused before anything is written") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const WholeModel whole(golden_folder(kGolden));
  write_model(folder.path(), changed_weights([](std::string& name, Tensor& tensor) {
                if (name == kSomeWeight) tensor = tensor.reshape({96, 32});
              }));
  for (const Shard& shard : whole.shards()) shard.data.zero();
  REQUIRE_THROWS_WITH(load_parameters(folder.path(), whole.shards()),
                      Contains(kSomeWeight) && Contains("[96, 32], expected [32, 96]"));
  for (const Shard& shard : whole.shards()) {
    const Tensor untouched = Tensor::zeros(shard.data.shape(), DType::f32);
    REQUIRE(test::same_bits(shard.data, untouched));
  }
}

TEST_CASE("sizes out of bounds are refused before a model is made") {
  const json huge = std::uint64_t{1} << 63;  // negative as a 64-bit integer
  const json largest = std::int64_t{1} << 62;
  for (const char* key : {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}) {
    CAPTURE(key);
    REQUIRE_THAT(config_error(key, 0), Contains("is 0; expected 1 to"));
    REQUIRE_THAT(config_error(key, largest), Contains("is 4611686018427387904; expected 1 to"));
    REQUIRE_THAT(config_error(key, huge), Contains(key) && Contains("expected a whole number"));
  }
  json config = test::golden_config(kGolden);
  config["n_embd"] = largest;
  config["n_inner"] = 5;
  REQUIRE_THROWS_WITH(gpt2_config_from(config), Contains("width is 4611686018427387904"));
}

TEST_CASE("a config.json with more layers than the weights is refused") {
  const TemporaryDirectory folder;
  write_model(folder.path(), test::golden_weights(kGolden));
  json config = test::golden_config(kGolden);
  config["n_layer"] = 4000;
  write_config(folder.path(), config);
  REQUIRE_THROWS_WITH(read_hyperparameters(folder.path()),
                      Contains("config.json has 4000 layers; the weights have 2"));
}

TEST_CASE("a size that only config.json claims costs no memory") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  write_model(folder.path(), test::golden_weights(kGolden));
  json config = test::golden_config(kGolden);
  config["vocab_size"] = 1 << 24;
  write_config(folder.path(), config);
  REQUIRE_THROWS_WITH(make_pretrained(folder.path()),
                      Contains("transformer.wte.weight") && Contains("expected [16777216, 32]"));
}

TEST_CASE("JSON that is nested deeply or names a key twice is refused") {
  const TemporaryDirectory folder;
  std::ofstream(folder / "config.json")
      << R"({"model_type": "gpt2", "tie_word_embeddings": )" << std::string(100000, '[')
      << std::string(100000, ']') << "}";
  REQUIRE_THROWS_WITH(read_hyperparameters(folder.path()), Contains("nested"));
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2", "model_type": "gpt2"})";
  REQUIRE_THROWS_WITH(read_hyperparameters(folder.path()),
                      Contains("model_type") && Contains("twice"));

  write_config(folder.path(), test::golden_config(kGolden));
  std::ofstream(folder / "model.safetensors.index.json") << std::string(100000, '[');
  REQUIRE_THROWS_WITH(make_pretrained(folder.path()), Contains("index.json") && Contains("nested"));
}

TEST_CASE("text of a config.json is quoted with its control characters escaped") {
  const TemporaryDirectory folder;
  json config = test::golden_config(kGolden);
  config["model_type"] = "\x1b]0;title\x07" + std::string(1000, 'x');
  write_config(folder.path(), config);
  const std::string message = test::error_of([&] { read_hyperparameters(folder.path()); });
  REQUIRE_THAT(message, Contains("u001b") && Contains("expected one of gpt2, llama, qwen2, qwen3"));
  REQUIRE(message.find('\x1b') == message.npos);
  REQUIRE(message.size() < 400);
}

TEST_CASE("weights that are NaN or infinite are refused with the parameter's name") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const float value = GENERATE(std::nanf(""), -std::nanf(""), INFINITY, -INFINITY);
  const DType stored = GENERATE(DType::f32, DType::bf16, DType::f16);
  write_model(folder.path(), changed_weights([&](std::string& name, Tensor& tensor) {
                if (name != kSomeWeight) return;
                std::vector<float> values = tensor.to_vector<float>();
                values.back() = value;
                const Tensor changed = Tensor::from(values, tensor.shape());
                tensor = Tensor::empty(tensor.shape(), stored);
                if (stored == DType::f32) {
                  tensor = changed;
                } else {
                  cast(tensor, changed);
                }
              }));
  REQUIRE_THROWS_WITH(WholeModel(folder.path()),
                      Contains(kSomeWeight) && Contains("NaN or infinite"));
}

TEST_CASE("the folder of a training run stands for its model") {
  const test::Rank rank;
  const TemporaryDirectory run;
  std::filesystem::create_directory(run / "model");
  write_model(run / "model", test::golden_weights(kGolden));
  REQUIRE(model_folder(run.path()) == run / "model");
  REQUIRE(model_folder(run / "model") == run / "model");
  require_golden_weights(WholeModel(run.path()).shards());
}

TEST_CASE("weights in pytorch_model.bin are refused with the way to convert them") {
  const TemporaryDirectory folder;
  write_config(folder.path(), test::golden_config(kGolden));
  std::ofstream(folder / "pytorch_model.bin") << "pickle";
  REQUIRE_THROWS_WITH(make_pretrained(folder.path()),
                      Contains("pytorch_model.bin") && Contains("save_pretrained"));
}

TEST_CASE("a tensor that lies in two files is refused") {
  const TemporaryDirectory folder;
  write_config(folder.path(), test::golden_config(kGolden));
  write_safetensors(folder / "a.safetensors", test::golden_weights(kGolden));
  write_safetensors(folder / "b.safetensors", test::golden_weights(kGolden));
  std::ofstream(folder / "model.safetensors.index.json")
      << R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})";
  REQUIRE_THROWS_WITH(make_pretrained(folder.path()), Contains("is in two files"));
}

TEST_CASE("a folder that holds no model is named") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  REQUIRE_THROWS_WITH(make_pretrained(folder / "absent"), Contains("absent"));
  write_config(folder.path(), test::golden_config(kGolden));
  REQUIRE_THROWS_WITH(WholeModel(folder.path()), Contains("model.safetensors"));
  std::ofstream(folder / "config.json") << "{ not json";
  REQUIRE_THROWS_WITH(make_pretrained(folder.path()), Contains("config.json"));
  std::ofstream(folder / "config.json") << "[1, 2]";
  REQUIRE_THROWS_WITH(make_pretrained(folder.path()), Contains("config.json"));
}

TEST_CASE("a model cannot be saved where a file is in the way") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  std::ofstream(folder / "file") << "in the way";
  const WholeModel whole(golden_folder(kGolden));
  REQUIRE_THROWS_WITH(save_pretrained(folder / "file", *whole.model, *whole.strategy),
                      Contains("file"));
  REQUIRE(read_text_file(folder / "file") == "in the way");
}

TEST_CASE("the hub's gpt2 config.json gives the preset") {
  const json config = {
      {"model_type", "gpt2"},  {"architectures", {"GPT2LMHeadModel"}},
      {"vocab_size", 50257},   {"n_positions", 1024},
      {"n_ctx", 1024},         {"n_embd", 768},
      {"n_layer", 12},         {"n_head", 12},
      {"embd_pdrop", 0.1},     {"resid_pdrop", 0.1},
      {"attn_pdrop", 0.1},     {"layer_norm_epsilon", 1e-5},
      {"bos_token_id", 50256}, {"activation_function", "gelu_new"},
      {"eos_token_id", 50256}, {"initializer_range", 0.02},
  };
  const Gpt2Config read = gpt2_config_from(config);
  const auto preset = std::get<Gpt2Config>(model_preset("gpt2"));
  REQUIRE(read.vocab_size == preset.vocab_size);
  REQUIRE(read.context == preset.context);
  REQUIRE(read.layers == preset.layers);
  REQUIRE(read.heads == preset.heads);
  REQUIRE(read.width == preset.width);
  REQUIRE(read.norm_epsilon == preset.norm_epsilon);
  REQUIRE(Gpt2(read).config().at("eos_token_id") == 50256);
}

TEST_CASE("a config.json of a model that would compute something else is refused") {
  REQUIRE_THAT(config_error("model_type", "bert"), Contains("model_type") && Contains("bert"));
  REQUIRE_THAT(config_error("vocab_size", "many"), Contains("vocab_size"));
  REQUIRE_THAT(config_error("n_layer", 1.5), Contains("n_layer"));
  REQUIRE_THAT(config_error("activation_function", "relu"), Contains("relu"));
  REQUIRE_THAT(config_error("n_inner", 100), Contains("n_inner"));
  REQUIRE_THAT(config_error("layer_norm_epsilon", "small"), Contains("layer_norm_epsilon"));
  REQUIRE_THAT(config_error("layer_norm_epsilon", -1.0), Contains("layer_norm_epsilon is -1"));
  REQUIRE_THAT(config_error("layer_norm_epsilon", 0), Contains("layer_norm_epsilon is 0"));
  REQUIRE_THAT(config_error("tie_word_embeddings", false), Contains("tie_word_embeddings"));
  REQUIRE_THAT(config_error("scale_attn_weights", false), Contains("scale_attn_weights"));
  REQUIRE_THAT(config_error("scale_attn_by_inverse_layer_idx", true),
               Contains("scale_attn_by_inverse_layer_idx"));
}

}  // namespace tessera
