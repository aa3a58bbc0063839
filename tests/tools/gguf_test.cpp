// tessera export --format gguf: files that llama.cpp loads. The reader here is written from the format's
// description (github.com/ggml-org/ggml, docs/gguf.md) and shares nothing with the writer. gguf_check.py
// compares llama.cpp's logits with the golden ones.
#include "tools/export/gguf.h"

#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cast/op.h"
#include "models/tokenizers/byte_spelling.h"
#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "runtime/file.h"
#include "runtime/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"
#include "tools/export/gguf_tokenizer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::TemporaryDirectory;

struct ReadTensor {
  std::vector<std::uint64_t> sizes;  // neighbours first
  std::uint32_t type = 0;
  std::string data;

  std::size_t count() const {
    std::size_t n = 1;
    for (const auto size : sizes) n *= size;
    return n;
  }
  template <typename T>
  std::vector<T> values() const {
    std::vector<T> result(count());
    REQUIRE(data.size() >= result.size() * sizeof(T));
    std::memcpy(result.data(), data.data(), result.size() * sizeof(T));
    return result;
  }
};

/// A GGUF file. Lists of keys become JSON lists.
struct ReadGguf {
  std::map<std::string, nlohmann::json> keys;
  std::map<std::string, ReadTensor> tensors;

  explicit ReadGguf(const fs::path& path) : text_(read_text_file(path)) {
    REQUIRE(text_.substr(0, 4) == "GGUF");
    at_ = 4;
    REQUIRE(number<std::uint32_t>() == 3);
    const auto count = number<std::uint64_t>(), key_count = number<std::uint64_t>();
    for (std::uint64_t i = 0; i < key_count; ++i) {
      const std::string key = text();
      REQUIRE(keys.count(key) == 0);
      keys[key] = value(number<std::uint32_t>());
    }
    std::vector<std::pair<std::string, std::uint64_t>> offsets;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string name = text();
      ReadTensor& tensor = tensors[name];
      tensor.sizes.resize(number<std::uint32_t>());
      for (auto& size : tensor.sizes) size = number<std::uint64_t>();
      tensor.type = number<std::uint32_t>();
      offsets.emplace_back(name, number<std::uint64_t>());
    }
    const std::size_t begin = (at_ + 31) / 32 * 32;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const auto& [name, offset] = offsets[i];
      CHECK(offset % 32 == 0);
      const std::size_t end = i + 1 < offsets.size() ? begin + offsets[i + 1].second : text_.size();
      tensors[name].data = text_.substr(begin + offset, end - begin - offset);
    }
    CHECK(text_.size() % 32 == 0);
  }

 private:
  template <typename T>
  T number() {
    T value;
    REQUIRE(at_ + sizeof value <= text_.size());
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto bytes = number<std::uint64_t>();
    REQUIRE(at_ + bytes <= text_.size());
    at_ += bytes;
    return text_.substr(at_ - bytes, bytes);
  }
  nlohmann::json value(std::uint32_t type) {
    switch (type) {
      case 4:
        return number<std::uint32_t>();
      case 5:
        return number<std::int32_t>();
      case 6:
        return number<float>();
      case 7:
        return number<std::uint8_t>() != 0;
      case 8:
        return text();
      case 9: {
        const auto element = number<std::uint32_t>();
        nlohmann::json list = nlohmann::json::array();
        for (auto n = number<std::uint64_t>(); n > 0; --n) list.push_back(value(element));
        return list;
      }
      default:
        FAIL("type " << type << " of a key");
        return {};
    }
  }

  std::string text_;
  std::size_t at_ = 0;
};

fs::path golden_folder(const std::string& name) {
  return fs::path(TESSERA_SOURCE_DIR) / "tests/golden" / name;
}

/// A golden model with a tokenizer, which the golden folders do not have.
fs::path model_with_bytes(const std::string& name, const fs::path& folder) {
  fs::copy(golden_folder(name), folder);
  nlohmann::json config = nlohmann::json::parse(read_text_file(folder / "config.json"));
  std::vector<std::string> letters;
  for (std::int64_t i = 0; i < config["vocab_size"].get<std::int64_t>(); ++i) {
    letters.push_back(std::string(1, static_cast<char>(i + 1)));
  }
  letters.resize(std::min<std::size_t>(letters.size(), 90));
  CharTokenizer::from_characters(letters).save(folder);
  return folder;
}

std::vector<float> stored(const fs::path& folder, const std::string& name) {
  return SafetensorsFile(folder / "model.safetensors").tensor(name).to_vector<float>();
}

using Sizes = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("gguf: GPT-2's matrices are transposed, its vectors and positions stay") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const fs::path model = model_with_bytes("gpt2/odd", folder / "model");
  CHECK(export_gguf({.model = model, .out = folder / "m.gguf"}).empty());
  const ReadGguf file(folder / "m.gguf");
  const auto config = nlohmann::json::parse(read_text_file(model / "config.json"));
  CHECK(file.keys.at("general.architecture") == "gpt2");
  CHECK(file.keys.at("general.file_type") == 0);
  CHECK(file.keys.at("gpt2.block_count") == config["n_layer"]);
  CHECK(file.keys.at("gpt2.context_length") == config["n_positions"]);
  CHECK(file.keys.at("gpt2.attention.head_count") == config["n_head"]);
  const auto width = config["n_embd"].get<std::uint64_t>();
  const ReadTensor& qkv = file.tensors.at("blk.0.attn_qkv.weight");
  REQUIRE(qkv.sizes == Sizes{width, 3 * width});
  const auto ours = stored(model, "transformer.h.0.attn.c_attn.weight");
  const auto theirs = qkv.values<float>();
  bool equal = true;
  for (std::size_t in = 0; in < width; ++in) {
    for (std::size_t out = 0; out < 3 * width; ++out) {
      equal = equal && theirs[out * width + in] == ours[in * 3 * width + out];
    }
  }
  CHECK(equal);
  CHECK(file.tensors.at("position_embd.weight").values<float>() ==
        stored(model, "transformer.wpe.weight"));
  CHECK(file.tensors.at("blk.0.attn_qkv.bias").values<float>() ==
        stored(model, "transformer.h.0.attn.c_attn.bias"));
  CHECK(file.tensors.count("output.weight") == 0);  // tied
  // Two tables, the last norm's two, and 12 of each layer.
  CHECK(file.tensors.size() == 4 + 12 * config["n_layer"].get<std::size_t>());
}

TEST_CASE("gguf: Llama's heads have the two channels of a rotation side by side, Qwen's do not") {
  const test::Rank rank;
  const std::string name = GENERATE("llama/llama3", "llama/qwen3");
  const TemporaryDirectory folder;
  const fs::path model = model_with_bytes(name, folder / "model");
  export_gguf({.model = model, .out = folder / "m.gguf"});
  const ReadGguf file(folder / "m.gguf");
  const bool llama = name == "llama/llama3";
  const std::string architecture = llama ? "llama" : "qwen3";
  CHECK(file.keys.at("general.architecture") == architecture);
  const auto config = nlohmann::json::parse(read_text_file(model / "config.json"));
  CHECK(file.keys.at(architecture + ".attention.head_count_kv") == config["num_key_value_heads"]);
  const std::string key = "model.layers.1.self_attn.k_proj.weight";
  const auto ours = stored(model, key);
  const auto theirs = file.tensors.at("blk.1.attn_k.weight").values<float>();
  REQUIRE(ours.size() == theirs.size());
  const std::size_t head = config["head_dim"], width = config["hidden_size"];
  bool equal = true;
  for (std::size_t row = 0; row < ours.size() / width; ++row) {
    // Row 2i + half of a head is channel half * head / 2 + i.
    const std::size_t i = row % head;
    const std::size_t from = llama ? row - i + i % 2 * (head / 2) + i / 2 : row;
    equal = equal &&
            std::equal(&theirs[row * width], &theirs[row * width] + width, &ours[from * width]);
  }
  CHECK(equal);
  CHECK(file.tensors.at("blk.1.attn_v.weight").values<float>() ==
        stored(model, "model.layers.1.self_attn.v_proj.weight"));
}

TEST_CASE("gguf: Llama 3's scaled frequencies are divisors of the plain ones") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  export_gguf(
      {.model = model_with_bytes("llama/llama3", folder / "model"), .out = folder / "m.gguf"});
  const auto divisors = ReadGguf(folder / "m.gguf").tensors.at("rope_freqs.weight").values<float>();
  // theta 500, head 8, factor 8, low 1, high 4, original context 32 (config.json); the rule of
  // github.com/meta-llama/llama-models.
  REQUIRE(divisors.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const double frequency = std::pow(500.0, -2.0 * static_cast<double>(i) / 8.0);
    const double periods = 32.0 * frequency / (2.0 * M_PI);
    const double blend = std::clamp((periods - 1.0) / 3.0, 0.0, 1.0);
    const double scaled = (1.0 - blend) * frequency / 8.0 + blend * frequency;
    CHECK(divisors[i] == Approx(frequency / scaled).epsilon(1e-6));
  }
}

TEST_CASE("gguf: experts are stacked, and the router is f32") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const fs::path model = model_with_bytes("qwen3_moe/typical", folder / "model");
  export_gguf({.model = model, .out = folder / "m.gguf", .type = GgufType::f16});
  const ReadGguf file(folder / "m.gguf");
  const auto config = nlohmann::json::parse(read_text_file(model / "config.json"));
  const auto experts = config["num_local_experts"].get<std::uint64_t>();
  const auto inner = config["moe_intermediate_size"].get<std::uint64_t>();
  const auto width = config["hidden_size"].get<std::uint64_t>();
  CHECK(file.keys.at("qwen3moe.expert_count") == experts);
  CHECK(file.keys.at("qwen3moe.expert_used_count") == config["num_experts_per_tok"]);
  CHECK(file.keys.at("general.file_type") == 1);
  const auto check_stack = [&](const std::string& theirs, const std::string& ours,
                               const Sizes& sizes) {
    CAPTURE(theirs);
    const ReadTensor& stack = file.tensors.at("blk.0." + theirs + ".weight");
    REQUIRE(stack.sizes == sizes);
    REQUIRE(stack.type == 1);
    const auto all = stack.values<float16>();
    bool equal = true;
    for (std::uint64_t e = 0; e < experts; ++e) {
      const auto one =
          stored(model, fmt::format("model.layers.0.mlp.experts.{}.{}.weight", e, ours));
      for (std::size_t i = 0; i < one.size(); ++i) {
        equal = equal && all[e * one.size() + i].bits == float16(one[i]).bits;
      }
    }
    CHECK(equal);
  };
  check_stack("ffn_gate_exps", "gate_proj", {width, inner, experts});
  check_stack("ffn_up_exps", "up_proj", {width, inner, experts});
  check_stack("ffn_down_exps", "down_proj", {inner, width, experts});
  const ReadTensor& router = file.tensors.at("blk.0.ffn_gate_inp.weight");
  CHECK(router.type == 0);
  CHECK(router.values<float>() == stored(model, "model.layers.0.mlp.gate.weight"));
}

TEST_CASE("gguf: q8_0 has a factor for 32 neighbours and is off by at most half a step") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const std::int64_t rows = 5, columns = 96;
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    values.push_back(i / 32 == 3 ? 0.0f
                                 : std::sin(static_cast<float>(i * i)) *
                                       std::ldexp(1.0f, static_cast<int>(i / 32 % 7) - 3));
  }
  const Tensor matrix = Tensor::from<float>(values, {rows, columns});
  write_gguf(folder / "m.gguf", {},
             {{"a", {rows, columns}, GgufType::q8_0}, {"b", {1}, GgufType::f32}},
             [&](const auto& write) {
               write(matrix.slice(0, 2));  // in pieces
               write(matrix.slice(2, rows));
               write(Tensor::from<float>(std::vector<float>{7.0f}, {1}));
             });
  const ReadGguf file(folder / "m.gguf");
  const ReadTensor& read = file.tensors.at("a");
  CHECK(read.type == 8);
  REQUIRE(read.data.size() >= values.size() / 32 * 34);
  for (std::size_t block = 0; block < values.size() / 32; ++block) {
    CAPTURE(block);
    float16 factor;
    std::memcpy(&factor, read.data.data() + 34 * block, 2);
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(32 * block);
    const float largest = std::abs(*std::max_element(
        begin, begin + 32, [](float a, float b) { return std::abs(a) < std::abs(b); }));
    CHECK(factor.bits == float16(largest / 127.0f).bits);
    for (std::size_t i = 0; i < 32; ++i) {
      const auto q = static_cast<signed char>(read.data[34 * block + 2 + i]);
      // Half a step, and the rounding of the factor to 11 bits.
      const float bound = largest / 127.0f * 0.5f + largest / 2048.0f;
      CHECK(std::abs(static_cast<float>(q) * static_cast<float>(factor) - begin[i]) <= bound);
      if (std::abs(begin[i]) == largest && largest > 0) CHECK(std::abs(int{q}) == 127);
    }
  }
  CHECK(file.tensors.at("b").values<float>() == std::vector<float>{7.0f});
}

TEST_CASE("gguf: a matrix that does not fill blocks of 32 is f16") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  // Width 32, MLP width 56.
  const fs::path model = model_with_bytes("llama/llama3", folder / "model");
  export_gguf({.model = model, .out = folder / "m.gguf", .type = GgufType::q8_0});
  const ReadGguf file(folder / "m.gguf");
  CHECK(file.tensors.at("blk.0.ffn_up.weight").type == 8);
  CHECK(file.tensors.at("blk.0.ffn_down.weight").type == 1);
  CHECK(file.tensors.at("blk.0.ffn_norm.weight").type == 0);
  CHECK(file.keys.at("general.file_type") == 7);
}

TEST_CASE("gguf: tokens are spelled, numbered and padded as llama.cpp reads them") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const fs::path model = folder / "model";
  fs::copy(golden_folder("llama/llama3"), model);  // 97 tokens
  CharTokenizer::from_characters({"a", " ", "\n"}).save(model);
  nlohmann::json config = nlohmann::json::parse(read_text_file(model / "config.json"));
  config["eos_token_id"] = {2, 1};
  std::ofstream(model / "config.json") << config.dump();
  std::ofstream(model / "chat_template.jinja") << "{{ messages }}";
  export_gguf({.model = model, .out = folder / "m.gguf"});
  const auto keys = ReadGguf(folder / "m.gguf").keys;
  const nlohmann::json& tokens = keys.at("tokenizer.ggml.tokens");
  REQUIRE(tokens.size() == 97);
  CHECK(tokens[0] == "a");
  CHECK(tokens[1] == spelling_of_byte(' '));
  CHECK(tokens[2] == spelling_of_byte('\n'));
  CHECK(tokens[96] == "[PAD96]");
  CHECK(keys.at("tokenizer.ggml.token_type")[96] == 5);
  CHECK(keys.at("tokenizer.ggml.eos_token_id") == 2);
  CHECK(keys.count("tokenizer.ggml.bos_token_id") == 0);
  CHECK(keys.at("tokenizer.ggml.add_bos_token") == false);
  CHECK(keys.at("tokenizer.chat_template") == "{{ messages }}");
}

TEST_CASE("gguf: published tokenizers keep their merges, special tokens and way to cut text") {
  const std::string name = GENERATE("llama3", "qwen3");
  const fs::path source =
      fs::path(TESSERA_SOURCE_DIR).parent_path() / "shared/data/tokenizers" / name;
  if (!fs::exists(source)) return;
  const TemporaryDirectory folder;
  fs::copy(source / "tokenizer.json", folder / "tokenizer.json");
  std::ofstream(folder / "config.json") << R"({"bos_token_id": 5})";
  const auto file = nlohmann::json::parse(read_text_file(source / "tokenizer.json"));
  write_gguf(folder / "m.gguf", tokenizer_keys(folder.path(), 160000), {}, [](const auto&) {});
  const auto keys = ReadGguf(folder / "m.gguf").keys;
  CHECK(keys.at("tokenizer.ggml.pre") == (name == "llama3" ? "llama-bpe" : "qwen2"));
  CHECK(keys.at("tokenizer.ggml.merges").size() == file["model"]["merges"].size());
  const nlohmann::json& added = file["added_tokens"][0];
  CHECK(keys.at("tokenizer.ggml.tokens")[added["id"].get<std::size_t>()] == added["content"]);
  CHECK(keys.at("tokenizer.ggml.token_type")[added["id"].get<std::size_t>()] == 3);
}

TEST_CASE("gguf: a model that llama.cpp computes in another way is refused") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  int models = 0;
  const auto refuse = [&](const std::string& name, const std::string& reason) {
    CAPTURE(name);
    const fs::path model = model_with_bytes(name, folder / fmt::format("model{}", models++));
    CHECK_THROWS_WITH(export_gguf({.model = model, .out = folder / "m.gguf"}), Contains(reason));
    CHECK_FALSE(fs::exists(folder / "m.gguf"));
  };
  refuse("gpt2/exact_gelu", "GELU in its tanh form");
  refuse("llama4/odd", "llama4 has no form in GGUF");
  refuse("llama/dynamic", "this scaling of RoPE has no form");
  refuse("llama/longrope_long", "this scaling of RoPE has no form");
  refuse("qwen3_moe/odd", "llama.cpp's qwen3moe");
}

TEST_CASE("gguf: what is missing or in the way is named") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  const fs::path model = folder / "model";
  fs::copy(golden_folder("llama/llama3"), model);
  const auto with = [&](const fs::path& out) {
    return [&, out] { export_gguf({.model = model, .out = out}); };
  };
  CHECK_THROWS_WITH(with(folder / "m.gguf")(),
                    Contains("tokenizer.json: a GGUF file holds its tokenizer"));
  CharTokenizer::from_characters({"a", "\u00e9"}).save(model);
  CHECK_THROWS_WITH(with(folder / "m.gguf")(), Contains("not byte-level BPE"));
  ByteTokenizer().save(model);
  CHECK_THROWS_WITH(with(folder / "m.gguf")(), Contains("and the model has 97 tokens"));
  std::ofstream(folder / "there.gguf") << "x";
  CHECK_THROWS_WITH(with(folder / "there.gguf")(), Contains("this file exists"));
  CHECK(read_text_file(folder / "there.gguf") == "x");
}

}  // namespace tessera
