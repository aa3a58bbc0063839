// Published kinds of tokenizers against Hugging Face's library (tests/golden/README.md).
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "models/tokenizers/tokenizer.h"
#include "runtime/file.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

const fs::path kGoldens = TESSERA_SOURCE_DIR "/tests/golden/tokenizers";
const fs::path kPublished = TESSERA_SOURCE_DIR "/../shared/data/tokenizers";

json read(const fs::path& path) {
  return json::parse(read_text_file(path));
}

/// Whether a published tokenizer is there. A warning says that it is not.
bool is_there(const fs::path& folder) {
  if (!fs::exists(folder)) WARN("skipped: there is no " << folder);
  return fs::exists(folder);
}

}  // namespace

TEST_CASE("trained tokenizers give Hugging Face's ids and text") {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    const auto tokenizer = Tokenizer::load(entry.path());
    names.insert(entry.path().filename());
    const json file = read(entry.path() / "cases.json");
    REQUIRE(file.at("cases").size() > 40);
    for (const json& one : file.at("cases")) {
      const auto text = one.at("text").get<std::string>();
      CAPTURE(entry.path().filename(), text);
      const Tokens ids = tokenizer->encode(text);
      CHECK(ids == one.at("ids").get<Tokens>());
      CHECK(tokenizer->encode_plain(text) == one.at("plain").get<Tokens>());
      CHECK(tokenizer->with_special_tokens(ids) == one.at("special").get<Tokens>());
      CHECK(tokenizer->decode(ids) == one.at("decoded").get<std::string>());
    }
  }
  REQUIRE(names == std::set<std::string>{"added", "gemma3", "llama2", "llama2_metaspace", "llama4",
                                         "metaspace_words", "prefixed"});
}

// Loading them takes long, so one test asks for everything.
TEST_CASE("published tokenizers give Hugging Face's ids, and have their sizes and added tokens") {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name : {"gpt2", "llama3", "qwen3"}) {
    if (!is_there(kPublished / name)) return;
    const auto& tokenizer = tokenizers[name] = Tokenizer::load(kPublished / name);
    const json cases = read(kPublished / name / "cases.json");
    REQUIRE(cases.size() > 10);
    for (const json& one : cases) {
      const auto text = one.at("text").get<std::string>();
      CAPTURE(name, text);
      const Tokens ids = tokenizer->encode(text);
      CHECK(ids == one.at("ids").get<Tokens>());
      CHECK(tokenizer->encode_plain(text) == ids);
      // NFC changes a text that is not composed; the cases are.
      CHECK(tokenizer->decode(ids) == text);
    }
  }
  const std::string text = "<|endoftext|>";
  const auto& gpt2 = tokenizers["gpt2"];
  CHECK(gpt2->vocab_size() == 50257);
  CHECK(gpt2->encode(text).size() == 7);  // vocab.json and merges.txt name no added tokens
  const auto& qwen3 = tokenizers["qwen3"];
  CHECK(qwen3->vocab_size() == 151669);
  CHECK(qwen3->encode("a" + text + "b") == Tokens{64, 151643, 65});
  CHECK(qwen3->encode_plain(text).size() == 7);
  const auto& llama3 = tokenizers["llama3"];
  CHECK(llama3->vocab_size() == 128256);
  CHECK(llama3->encode("<|begin_of_text|>") == Tokens{128000});
}

TEST_CASE("a published tokenizer is saved as a tokenizer.json that loads again") {
  for (const fs::path& folder : {kGoldens / "llama2", kPublished / "gpt2"}) {
    if (!is_there(folder)) continue;
    const test::TemporaryDirectory copy;
    const auto tokenizer = Tokenizer::load(folder);
    tokenizer->save(copy.path());
    const auto again = Tokenizer::load(copy.path());
    const std::string text = "Hello <s> world 日本\n\n 12";
    CHECK(again->vocab_size() == tokenizer->vocab_size());
    CHECK(again->encode(text) == tokenizer->encode(text));
    CHECK(again->decode(again->encode(text)) == tokenizer->decode(tokenizer->encode(text)));
  }
}

}  // namespace tessera
