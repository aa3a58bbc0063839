// tessera export: folders that Transformers loads, and that come back bit for bit.
#include "tools/export/export.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/cast/op.h"
#include "models/fp8_form.h"
#include "models/hugging_face.h"
#include "runtime/file.h"
#include "runtime/safetensors.h"
#include "tests/models/whole_model.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::TemporaryDirectory;

fs::path golden_folder(const std::string& name) {
  return fs::path(TESSERA_SOURCE_DIR) / "tests/golden" / name;
}

nlohmann::json read_json(const fs::path& path) {
  return nlohmann::json::parse(read_text_file(path));
}

/// Every tensor of a folder's files, in memory of its own.
std::map<std::string, Tensor> tensors_in(const fs::path& folder) {
  std::map<std::string, Tensor> tensors;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("model") || entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    for (const auto& [tensor, info] : file.tensors()) tensors[tensor] = file.tensor(tensor).clone();
  }
  return tensors;
}

void require_same(const fs::path& a, const fs::path& b) {
  const auto first = tensors_in(a), second = tensors_in(b);
  REQUIRE(first.size() == second.size());
  for (const auto& [name, tensor] : first) {
    CAPTURE(name);
    REQUIRE(second.at(name).dtype() == tensor.dtype());
    CHECK(test::same_bits(second.at(name), tensor));
  }
}

/// A folder with a model like a golden one, with random weights: matrices of one or several blocks of 128 x 128, but
/// for k and v with 64 rows.
void make_wide_model(const std::string& golden, const fs::path& folder) {
  nlohmann::json config = read_json(golden_folder(golden) / "config.json");
  config["hidden_size"] = 128, config["head_dim"] = 64;
  config["num_attention_heads"] = 4, config["num_key_value_heads"] = 1;
  config["intermediate_size"] = 256, config["moe_intermediate_size"] = 128;
  const test::WholeModel whole(make_model(family_of(config).config_from(config)));
  save_pretrained(folder, *whole.model, *whole.strategy);
}

/// "model.layers.1.mlp.experts.3.up_proj.weight" without numbers.
std::string without_numbers(std::string name) {
  std::erase_if(name, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return name;
}

}  // namespace

TEST_CASE("export: a model comes back bit for bit, in one file or in several") {
  const test::Rank rank;
  const std::string name = GENERATE("gpt2/odd", "llama/odd", "llama/qwen2", "llama/qwen3",
                                    "qwen3_moe/odd", "llama4/odd");
  const std::int64_t file_bytes = GENERATE(5'000'000'000, 20'000, 1);
  CAPTURE(name, file_bytes);
  const TemporaryDirectory folder;
  const fs::path out = folder / "a", again = folder / "b";
  export_model({.model = golden_folder(name), .out = out, .file_bytes = file_bytes});
  require_same(golden_folder(name), out);
  CHECK(fs::exists(out / "model.safetensors") == (file_bytes > 1'000'000));
  CHECK(fs::exists(out / "model.safetensors.index.json") == (file_bytes < 1'000'000));
  // From several files, or one, into one.
  export_model({.model = out, .out = again});
  require_same(golden_folder(name), again);
  CHECK(read_json(again / "config.json") == read_json(out / "config.json"));
  CHECK(make_pretrained(again)->config() == make_pretrained(golden_folder(name))->config());
}

TEST_CASE("export: biases of routers are left out, with a warning") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const fs::path golden = golden_folder("qwen3_moe/typical"), model = folder / "model";
  CHECK(export_model({.model = golden, .out = folder / "plain"}).empty());
  fs::copy(golden, model);
  NamedTensors weights;
  for (const auto& [name, tensor] : tensors_in(golden)) weights.emplace_back(name, tensor);
  for (const char* layer : {"0", "1"}) {
    weights.emplace_back(fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", layer),
                         Tensor::full({8}, DType::f32, 0.25));
  }
  write_safetensors(model / "model.safetensors", weights);
  CHECK_THAT(export_model({.model = model, .out = folder / "out"}),
             Contains("biases of the routers are left out"));
  require_same(folder / "out", folder / "plain");
}

TEST_CASE("export: the index names the file of every tensor, and no file is too large") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const fs::path out = folder / "out";
  export_model({.model = golden_folder("llama/qwen3"), .out = out, .file_bytes = 20'000});
  const nlohmann::json index = read_json(out / "model.safetensors.index.json");
  std::int64_t total = 0;
  std::map<std::string, std::int64_t> bytes;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    const Tensor tensor = SafetensorsFile(out / file.get<std::string>()).tensor(name);
    bytes[file] += 4 * tensor.numel();
    total += 4 * tensor.numel();
  }
  CHECK(index.at("metadata").at("total_size") == total);
  REQUIRE(bytes.size() > 2);
  CHECK(bytes.begin()->first == fmt::format("model-00001-of-{:05}.safetensors", bytes.size()));
  for (const auto& [file, size] : bytes) CHECK(size <= 20'000);
}

TEST_CASE("export: bf16 is rounded once, and config.json says so") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const fs::path out = folder / "a", again = folder / "b", wide = folder / "c";
  export_model({.model = golden_folder("llama/llama3"), .out = out, .dtype = DType::bf16});
  for (const auto& [name, tensor] : tensors_in(golden_folder("llama/llama3"))) {
    CAPTURE(name);
    const Tensor rounded = Tensor::empty(tensor.shape(), DType::bf16);
    cast(rounded, tensor);
    CHECK(test::same_bits(tensors_in(out).at(name), rounded));
  }
  CHECK(read_json(out / "config.json").at("torch_dtype") == "bfloat16");
  export_model({.model = out, .out = again});  // as stored
  require_same(out, again);
  export_model({.model = out, .out = wide, .dtype = DType::f32});
  CHECK(read_json(wide / "config.json").at("torch_dtype") == "float32");
  CHECK(test::to_doubles(tensors_in(wide).at("model.norm.weight")) ==
        test::to_doubles(tensors_in(out).at("model.norm.weight")));
}

TEST_CASE("export: fp8 puts linear layers into Hugging Face's form, and all others into bf16") {
  const test::Rank rank;
  const bool has_experts = GENERATE(false, true);
  const std::int64_t file_bytes = GENERATE(5'000'000'000, 100'000);
  CAPTURE(has_experts, file_bytes);
  const TemporaryDirectory folder;
  const fs::path model = folder / "model", out = folder / "a", again = folder / "b";
  make_wide_model(has_experts ? "qwen3_moe/typical" : "llama/qwen3", model);
  export_model({.model = model, .out = out, .dtype = DType::e4m3, .file_bytes = file_bytes});
  export_model({.model = out, .out = again});  // to f32

  const auto written = tensors_in(out), back = tensors_in(again);
  std::set<std::string> in_8_bits;
  std::size_t tensors = 0;
  for (const auto& [name, tensor] : tensors_in(model)) {
    CAPTURE(name);
    ++tensors;
    if (!is_fp8(written.at(name).dtype())) {
      const Tensor rounded = Tensor::empty(tensor.shape(), DType::bf16);
      cast(rounded, tensor);
      CHECK(test::same_bits(written.at(name), rounded));
      CHECK(test::same_bits(back.at(name), rounded));
      continue;
    }
    ++tensors;
    in_8_bits.insert(without_numbers(name));
    const auto [numbers, scales] = to_fp8_form(tensor);
    CHECK(test::same_bits(written.at(name), numbers));
    CHECK(test::same_bits(written.at(name + "_scale_inv"), scales));
    CHECK(test::same_bits(back.at(name), from_fp8_form(numbers, scales)));
  }
  CHECK(written.size() == tensors);
  const std::string layer = "model.layers..",
                    mlp = layer + (has_experts ? "mlp.experts.." : "mlp.");
  CHECK(in_8_bits == std::set{layer + "self_attn.q_proj.weight", layer + "self_attn.o_proj.weight",
                              mlp + "gate_proj.weight", mlp + "up_proj.weight",
                              mlp + "down_proj.weight"});

  const nlohmann::json config = read_json(out / "config.json");
  CHECK(config.at("torch_dtype") == "bfloat16");
  const auto kept =
      config.at("quantization_config").at("modules_to_not_convert").get<std::set<std::string>>();
  for (const char* name : {"lm_head", "model.embed_tokens", "model.layers.1.self_attn.k_proj"}) {
    CHECK(kept.contains(name));
  }
  CHECK(kept.contains("model.layers.0.mlp.gate") == has_experts);
  CHECK_FALSE(kept.contains("model.layers.0.mlp.experts"));
  CHECK_FALSE(read_json(again / "config.json").contains("quantization_config"));
  if (fs::exists(out / "model.safetensors")) return;
  for (const auto& [name, tensor] : written) {
    const std::string file = read_json(out / "model.safetensors.index.json")["weight_map"][name];
    CHECK(SafetensorsFile(out / file).contains(name));
  }
}

TEST_CASE(
    "export: a model without Hugging Face's form of 8 bits is refused before a folder is made") {
  const TemporaryDirectory folder;
  const auto refusal = [&](const std::string& name) {
    return test::error_of([&] {
      export_model({.model = golden_folder(name), .out = folder / "out", .dtype = DType::e4m3});
    });
  };
  CHECK_THAT(refusal("gpt2/plain"), Contains("no such form for GPT-2's layers; choose bf16"));
  CHECK_THAT(refusal("llama/qwen3"), Contains("no linear layer has extents that are multiples of"));
  CHECK_FALSE(fs::exists(folder / "out"));
}

TEST_CASE("export: 8-bit weights without their scales are refused") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  make_wide_model("llama/qwen3", folder / "model");
  export_model({.model = folder / "model", .out = folder / "out", .dtype = DType::e4m3});
  const std::string scales = "model.layers.1.mlp.up_proj.weight_scale_inv";
  const auto refusal = [&](const Tensor& other) {
    NamedTensors tensors;
    for (const auto& [name, tensor] : tensors_in(folder / "out")) {
      if (name != scales) tensors.emplace_back(name, tensor);
    }
    if (other.defined()) tensors.emplace_back(scales, other);
    write_safetensors(folder / "out/model.safetensors", tensors);
    return test::error_of([&] { test::WholeModel(folder / "out"); });
  };
  CHECK_THAT(refusal({}), Contains("'model.layers.1.mlp.up_proj.weight' has dtype e4m3, expected a "
                                   "tensor model.layers.1.mlp.up_proj.weight_scale_inv, too"));
  CHECK_THAT(refusal(Tensor::full({1, 2}, DType::f32, 1.0)),
             Contains("up_proj.weight") && Contains("expected floating ones [2, 1]"));
}

TEST_CASE("export: the tokenizer's files and token ids go along") {
  const TemporaryDirectory folder;
  const fs::path model = folder / "model", out = folder / "out";
  fs::copy(golden_folder("llama/llama3"), model);
  nlohmann::json config = read_json(model / "config.json");
  config["eos_token_id"] = {7, 9};
  std::ofstream(model / "config.json") << config.dump();
  for (const char* name : {"tokenizer.json", "generation_config.json", "notes.txt"}) {
    std::ofstream(model / name) << "{\"" << name << "\": 1}";
  }
  export_model({.model = model, .out = out});
  CHECK(read_text_file(out / "tokenizer.json") == "{\"tokenizer.json\": 1}");
  CHECK(fs::exists(out / "generation_config.json"));
  CHECK_FALSE(fs::exists(out / "notes.txt"));
  CHECK(read_json(out / "config.json").at("eos_token_id") == nlohmann::json{7, 9});
  CHECK(read_json(out / "config.json").at("bos_token_id").is_null());
}

TEST_CASE("export: a folder that holds a model is not written to") {
  const TemporaryDirectory folder;
  const fs::path out = folder / "out";
  export_model({.model = golden_folder("llama/odd"), .out = out});
  CHECK_THROWS_WITH(export_model({.model = golden_folder("llama/odd"), .out = out}),
                    Contains("a model is here already"));
  fs::remove(out / "config.json");
  CHECK_THROWS_WITH(export_model({.model = golden_folder("llama/odd"), .out = out}),
                    Contains("model.safetensors); choose another folder"));
  CHECK_THROWS_WITH(export_model({.model = folder / "none", .out = folder / "b"}),
                    Contains("no model here"));
  CHECK_FALSE(fs::exists(folder / "b"));
}

}  // namespace tessera
