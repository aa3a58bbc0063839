// tessera export: folders that Transformers loads, and that come back bit for bit.
#include "tools/export/export.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cast/op.h"
#include "models/hugging_face.h"
#include "runtime/file.h"
#include "runtime/safetensors.h"
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
