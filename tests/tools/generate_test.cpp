// tessera generate and tessera score, as a person or a script calls them.
#include "tools/generate/generate.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/gpt2/model.h"
#include "models/hugging_face.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "runtime/safetensors.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/device.h"
#include "tests/support/paths.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/generate/inference.h"
#include "tools/generate/stop_tokens.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using nlohmann::json;
using test::Outcome;
using test::run;

const std::string kGolden = TESSERA_SOURCE_DIR "/tests/golden/";

template <typename T>
std::vector<T> golden_values(const std::string& model, const std::string& tensor) {
  const test::Rank rank;
  return SafetensorsFile(kGolden + model + "/expected.safetensors").tensor(tensor).to_vector<T>();
}

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// The lines of a command's output, as JSON.
std::vector<json> lines_of(const std::vector<std::string>& arguments) {
  const Outcome outcome = run(with(arguments, {"--threads", "2", "--device", "cpu"}));
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  std::vector<json> lines;
  std::istringstream out(outcome.out);
  for (std::string line; std::getline(out, line);) lines.push_back(parse_json(line));
  return lines;
}

std::string list_of(const std::vector<std::int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

/// One line on stderr that contains `message`, nothing on stdout, status 1.
void check_error(const std::vector<std::string>& arguments, const std::string& message) {
  CAPTURE(message);
  const Outcome outcome = run(with(arguments, {"--device", "cpu"}));
  CHECK(outcome.status == 1);
  CHECK(outcome.out.empty());
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK_THAT(outcome.err, Contains(message));
}

/// A folder with a model of Transformers' and a text as its generation_config.json.
void copy_model(const std::string& name, const fs::path& folder, const std::string& generation) {
  fs::create_directories(folder);
  for (const char* const file : {"config.json", "model.safetensors"}) {
    fs::copy_file(kGolden + name + "/" + file, folder / file);
  }
  write_file_atomically(folder / "generation_config.json", generation);
}

}  // namespace

TEST_CASE("score prints Transformers' log-probabilities and their mean") {
  const std::string name =
      GENERATE("gpt2/plain", "llama/llama3", "llama/qwen3", "llama/mistral", "llama/longrope_long");
  CAPTURE(name);
  const test::TemporaryDirectory folder;
  const auto ids = golden_values<std::int32_t>(name, "input_ids");
  const auto logits = golden_values<float>(name, "logits");
  const SafetensorsFile file(kGolden + name + "/expected.safetensors");
  const Shape shape = file.tensors().at("logits").shape;  // [B, T, V]
  json rows = json::array();
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    rows.push_back(std::vector(ids.begin() + b * shape[1], ids.begin() + (b + 1) * shape[1]));
  }
  write_file_atomically(folder / "rows.json", rows.dump());
  const auto lines =
      lines_of({"score", "--model", kGolden + name, "--tokens", folder / "rows.json"});
  REQUIRE(lines.size() == 1);
  const json& scores = lines[0]["log_probabilities"];
  REQUIRE(scores.size() == static_cast<std::size_t>(shape[0]));
  double sum = 0.0;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    REQUIRE(scores[b].size() == static_cast<std::size_t>(shape[1] - 1));
    for (std::int64_t t = 0; t + 1 < shape[1]; ++t) {
      const float* const row = logits.data() + (b * shape[1] + t) * shape[2];
      double total = 0.0;
      for (std::int64_t v = 0; v < shape[2]; ++v) total += std::exp(double{row[v]});
      const double expected = row[ids[b * shape[1] + t + 1]] - std::log(total);
      CHECK(scores[b][t].get<double>() == Approx(expected).margin(1e-5));
      sum -= expected;
    }
  }
  CHECK(lines[0]["loss"].get<double>() ==
        Approx(sum / static_cast<double>(shape[0] * (shape[1] - 1))).epsilon(1e-5));
}

TEST_CASE("generate --temperature 0 gives Transformers' greedy tokens, without a tokenizer") {
  const std::string name =
      GENERATE("gpt2/plain", "llama/llama3", "llama/qwen2", "llama/qwen3", "llama/mistral");
  CAPTURE(name);
  auto expected = golden_values<std::int32_t>(name, "prompt");
  const std::string prompt = list_of(expected);
  const auto continuation = golden_values<std::int32_t>(name, "continuation");
  expected.insert(expected.end(), continuation.begin(), continuation.end());
  const std::vector<std::string> arguments = {"generate",
                                              "--model",
                                              kGolden + name,
                                              "--ids",
                                              prompt,
                                              "--tokens",
                                              std::to_string(continuation.size()),
                                              "--temperature",
                                              "0",
                                              "--json"};
  const auto lines = lines_of(arguments);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == json{{"ids", expected}});
  CHECK(lines_of(with(arguments, {"--ranks", "2"})) == lines);
}

TEST_CASE("generate's log-probabilities are score's, bit for bit, in any batch and on any ranks",
          "[cpu]") {
  const std::string name =
      GENERATE("gpt2/odd", "llama/odd", "llama/qwen3", "llama/mistral", "llama/qwen3_window",
               "llama/olmo2", "llama/dynamic", "llama/longrope_short", "gemma3/typical");
  const std::string dtype = GENERATE("f32", "bf16");
  CAPTURE(name, dtype);
  const test::TemporaryDirectory folder;
  write_file_atomically(folder / "prompts.json", "[[3], [1, 2, 3, 4, 5, 6], [9, 8]]");
  const std::vector<std::string> arguments = {
      "generate", "--model", kGolden + name, "--tokens", "9", "--json", "--log-probabilities",
      "--dtype",  dtype,     "--seed",       "3"};
  const auto batch = lines_of(with(arguments, {"--prompts", folder / "prompts.json"}));
  REQUIRE(batch.size() == 3);
  CHECK(lines_of(with(arguments, {"--prompts", folder / "prompts.json", "--ranks", "2"})) == batch);
  const std::vector<std::vector<std::int32_t>> prompts = {{3}, {1, 2, 3, 4, 5, 6}, {9, 8}};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(lines_of(with(arguments, {"--ids", list_of(prompts[i])})).front() == batch[i]);
    const std::vector<std::int32_t> ids = batch[i]["ids"];
    const std::vector<double> generated = batch[i]["log_probabilities"];
    CHECK(ids.size() == prompts[i].size() + 9);
    REQUIRE(generated.size() == 9);
    write_file_atomically(folder / "rows.json", json{ids}.dump());
    const auto scored =
        lines_of({"score", "--model", kGolden + name, "--tokens", folder / "rows.json", "--dtype",
                  dtype, "--ranks", i == 1 ? "2" : "1"});
    const std::vector<double> all = scored.front()["log_probabilities"].front();
    CHECK(std::vector(all.end() - 9, all.end()) == generated);
  }
}

TEST_CASE("a batch on this build's device has the tokens that each prompt has alone") {
  GenerateOptions options = {.model = kGolden + "llama/qwen3",
                             .sampling = {.temperature = 0.0},
                             .tokens = 8,
                             .threads = 2,
                             .device = to_string(test::device())};
  options.prompts = {{.text = {}, .ids = {3}},
                     {.text = {}, .ids = golden_values<std::int32_t>("llama/qwen3", "prompt")},
                     {.text = {}, .ids = {9, 8}}};
  const std::vector<Generated> batch = generate(options, {});
  REQUIRE(batch.size() == 3);
  const auto continuation = golden_values<std::int32_t>("llama/qwen3", "continuation");
  const std::vector<std::int32_t>& ids = batch[1].ids;
  CHECK(std::equal(ids.end() - 8, ids.end(), continuation.begin()));
  for (const Generated& together : batch) {
    GenerateOptions alone = options;
    alone.prompts = {{.text = {}, .ids = {together.ids.begin(), together.ids.end() - 8}}};
    CHECK(generate(alone, {}).front().ids == together.ids);
  }
}

TEST_CASE("a stop token ends a text and is its last token") {
  const std::string name = "llama/llama3";
  const auto prompt = golden_values<std::int32_t>(name, "prompt");
  const auto continuation = golden_values<std::int32_t>(name, "continuation");
  // The first token after the first that differs from it.
  std::size_t end = 1;
  while (continuation.at(end) == continuation[0]) ++end;
  auto expected = prompt;
  expected.insert(expected.end(), continuation.begin(),
                  continuation.begin() + static_cast<std::ptrdiff_t>(end) + 1);
  const test::TemporaryDirectory folder;
  const auto ids_of = [&](const std::string& generation, const std::vector<std::string>& more) {
    const fs::path model = folder.path() / "model";
    fs::remove_all(model);
    copy_model(name, model, generation);
    return lines_of(with({"generate", "--model", model.string(), "--ids", list_of(prompt),
                          "--tokens", "12", "--temperature", "0", "--json"},
                         more))
        .front()["ids"]
        .get<std::vector<std::int32_t>>();
  };
  const std::string id = std::to_string(continuation[end]);
  CHECK(ids_of("{}", {}).size() == prompt.size() + 12);
  CHECK(ids_of("{}", {"--stop", "1000," + id}) == expected);
  CHECK(ids_of(R"({"eos_token_id": )" + id + "}", {}) == expected);
  CHECK(ids_of(R"({"eos_token_id": [1000, )" + id + "]}", {}) == expected);
  CHECK(ids_of(R"({"eos_token_id": null})", {}).size() == prompt.size() + 12);
  const fs::path model = folder.path() / "model";
  for (const char* const wrong :
       {R"({"eos_token_id": "x"})", R"({"eos_token_id": [-1]})", R"({"eos_token_id": 1e30})"}) {
    write_file_atomically(model / "generation_config.json", wrong);
    check_error({"generate", "--model", model.string(), "--ids", "1", "--json"},
                "generation_config.json: eos_token_id is");
  }
}

TEST_CASE("a name given to --stop is an id or the spelling of one token") {
  const auto tokenizer = Tokenizer::load(kGolden + "tokenizers/llama4");
  StopTokens stop;
  add_stop_tokens(stop, {"7", "<|end_of_text|>", "!"}, tokenizer.get());
  CHECK(stop == StopTokens{0, 7, 1001});
  CHECK_THROWS_WITH(add_stop_tokens(stop, {"!\"\x01!"}, tokenizer.get()),
                    Contains("tokens; expected a token id or the spelling of one token"));
  CHECK_THROWS_WITH(add_stop_tokens(stop, {"x"}, nullptr),
                    Contains("--stop \"x\": not a token id"));
}

TEST_CASE("wrong tokens, rows and prompts are one line each") {
  const test::TemporaryDirectory folder;
  const std::string model = kGolden + "gpt2/plain";
  const auto score_error = [&](const std::string& rows, const std::string& message) {
    write_file_atomically(folder / "rows.json", rows);
    check_error({"score", "--model", model, "--tokens", folder / "rows.json"}, message);
  };
  score_error("{}", "rows.json: not a list of rows of token ids");
  score_error("[]", "not a list of rows");
  score_error("[[1, 2], [1, 2, 3]]", "row 2 has 3 tokens and row 1 has 2");
  score_error("[[1]]", "row 1 is \"[1]\"; expected a list of at least two token ids");
  score_error("[[1, 2.5]]", "row 1 is \"[1,2.5]\"; expected a list of at least two token ids");
  score_error("[[1, -2]]", "expected a list of at least two token ids");
  score_error("[[1, 1000000]]", "token 1000000 is outside the model's vocabulary of");
  score_error(json{std::vector<int>(5000, 1)}.dump(), "rows of 5000 tokens are longer than the");
  score_error("[[1, 2]", "rows.json");
  check_error({"score", "--model", model, "--tokens", folder / "none.json"}, "none.json");
  write_file_atomically(folder / "rows.json", std::string("[[1, 2]]"));
  check_error({"score", "--model", folder / "none", "--tokens", folder / "rows.json"}, "none");
  check_error({"generate", "--model", folder.path().string(), "--prompt", "x"}, "no model here");

  const std::vector<std::string> generate = {"generate", "--model", model, "--json"};
  check_error(with(generate, {"--ids", "1,x"}), "--ids: \"x\" is not a token id");
  check_error(with(generate, {"--ids", "1,-2"}), "--ids: \"-2\" is not a token id");
  check_error(with(generate, {"--ids", "1000000"}), "token 1000000 is outside");
  check_error(with(generate, {"--prompt", "x"}), "no tokenizer here");
  check_error(with(generate, {"--ids", "1", "--system", "x"}), "--system needs --chat");
  check_error({"generate", "--model", model, "--ids", "1"}, "--ids needs --json");
  for (const auto& [text, message] :
       {std::pair("", "no prompt here"), std::pair("[]", "no prompt here"),
        std::pair("[{}]", "prompt 1 is \"{}\"; expected a text or a list of token ids"),
        std::pair("[[1], [1.5]]", "prompt 2 is"), std::pair("a\n\nb\n", "prompt 2 is empty"),
        std::pair("[[]]", "prompt 1 is empty")}) {
    write_file_atomically(folder / "prompts", text);
    check_error(with(generate, {"--prompts", folder / "prompts"}), message);
  }
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"generate", "--model", model},
           {"generate", "--model", model, "--ids", "1", "--prompt", "x"},
           {"generate", "--prompt", "x"},
           {"generate", "--model", model, "--ids", "1", "--dtype", "f64"},
           {"generate", "--model", model, "--ids", "1", "--ranks", "0"},
           {"score", "--model", model},
           {"score", "--tokens", "x"}}) {
    CHECK(run(wrong).status == 2);
  }
}

TEST_CASE("texts are continued one after another, the same as alone") {
  const test::TemporaryDirectory folder;
  const Config config = test::tiny_run(folder);
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  REQUIRE(run({"train", folder / "run.yaml"}).status == 0);
  const std::vector<std::string> arguments = {"generate", "--model",  config.train.dir.string(),
                                              "--tokens", "40",       "--seed",
                                              "2",        "--device", "cpu"};
  const std::string one = run(with(arguments, {"--prompt", "1 2"})).out;
  const std::string other = run(with(arguments, {"--prompt", "31 32 33"})).out;
  CHECK(one.size() == 3 + 40 + 1);
  CHECK(one.starts_with("1 2"));
  write_file_atomically(folder / "prompts.txt", std::string("1 2\n31 32 33\n"));
  CHECK(run(with(arguments, {"--prompts", folder / "prompts.txt"})).out == one + other);
  CHECK(run(with(arguments, {"--prompts", folder / "prompts.txt", "--ranks", "3"})).out ==
        one + other);
  CHECK(run(with(arguments, {"--prompts", folder / "prompts.txt", "--batch", "1"})).out ==
        one + other);
  check_error({"generate", "--model", config.train.dir.string(), "--prompt", ""},
              "prompt is empty");
  // A stop token's text is not printed.
  const auto id = Tokenizer::load(config.train.dir / "model")->encode("2").front();
  const std::string stopped =
      run(with(arguments, {"--prompt", "1 2", "--stop", std::to_string(id)})).out;
  const std::size_t end = one.find('2', 3);
  REQUIRE(end != std::string::npos);
  CHECK(stopped == one.substr(0, end) + "\n");
}

TEST_CASE("several ranks share the weights by the run's strategy, or by fsdp") {
  const test::TemporaryDirectory folder;
  const auto strategy = [&](const std::string& yaml, int ranks) {
    fs::create_directories(folder.path() / "model");
    write_file_atomically(folder / "config.yaml", yaml);
    return inference_sharding(folder.path() / "model", DType::bf16, ranks);
  };
  CHECK(strategy("sharding: {strategy: zero3}\n", 2).strategy == StrategyKind::zero3);
  CHECK(strategy("sharding: {strategy: zero3}\n", 2).compute_dtype == DType::bf16);
  CHECK(strategy("sharding: {strategy: zero3}\n", 1).strategy == StrategyKind::single);
  CHECK(strategy("sharding: {strategy: single}\n", 2).strategy == StrategyKind::fsdp);
  CHECK(strategy("sharding: {strategy: fsdp, flatten_parameters: true}\n", 2).flatten_parameters);
  const std::string tensor = "sharding: {strategy: fsdp, tensor_parallel: 2, grid: 4}\n";
  CHECK(strategy(tensor, 4).tensor_parallel == 2);
  CHECK(strategy(tensor, 3).tensor_parallel == 1);
  CHECK(strategy(tensor, 1).grid == 4);
  fs::remove(folder.path() / "config.yaml");
  CHECK(inference_sharding(folder.path() / "model", DType::f32, 4).strategy == StrategyKind::fsdp);
}

TEST_CASE("a chat model gets the message in its template, and only the answer is printed") {
  const test::TemporaryDirectory folder;
  const fs::path model = folder.path() / "chat";
  const auto tokenizer = Tokenizer::load(kGolden + "tokenizers/llama4");
  {
    const test::Rank rank;
    const Gpt2 gpt2({.vocab_size = tokenizer->vocab_size(),
                     .context = 128,
                     .layers = 1,
                     .heads = 2,
                     .width = 16});
    const auto strategy = make_single_strategy(gpt2.units(), 1);
    save_pretrained(model, gpt2, *strategy);
  }
  tokenizer->save(model);
  const std::vector<std::string> arguments = {"generate", "--model", model.string(), "--prompt",
                                              "Hello",    "--chat",  "--tokens",     "5"};
  check_error(arguments, "no chat template here");
  const json templates = read_json_file(kGolden + "chat/cases.json")["templates"];
  for (const json& one : templates) {
    if (one["name"] != "llama4") continue;
    write_file_atomically(model / "chat_template.jinja", one["template"].get<std::string>());
  }
  const json line = lines_of(with(arguments, {"--json", "--system", "Be brief."})).front();
  const auto ids = line["ids"].get<std::vector<std::int32_t>>();
  const auto prompt = tokenizer->encode(
      "<|header_start|>system<|header_end|>\n\nBe brief.<|eot|>"
      "<|header_start|>user<|header_end|>\n\nHello<|eot|>"
      "<|header_start|>assistant<|header_end|>\n\n");
  REQUIRE(ids.size() == prompt.size() + 5);
  CHECK(std::equal(prompt.begin(), prompt.end(), ids.begin()));
  const Outcome text = run(with(arguments, {"--system", "Be brief.", "--device", "cpu"}));
  CHECK(text.status == 0);
  CHECK(text.out == tokenizer->decode(std::vector(ids.end() - 5, ids.end())) + "\n");
  CHECK(line["text"].get<std::string>() + "\n" == text.out);
}

}  // namespace tessera
