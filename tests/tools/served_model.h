// A tiny chat model, and a server of it in this process.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "models/gpt2/model.h"
#include "models/hugging_face.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/http_client.h"
#include "tests/support/paths.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"
#include "tools/serve/server.h"

namespace tessera::test {

/// One layer of GPT-2 with random weights, Llama 4's tokenizer and chat template, and some stop tokens.
inline std::filesystem::path save_chat_model(const std::filesystem::path& folder,
                                             std::int64_t context = 256) {
  const std::string golden = TESSERA_SOURCE_DIR "/tests/golden/";
  const auto tokenizer = Tokenizer::load(golden + "tokenizers/llama4");
  {
    const Rank rank(1);
    const Gpt2 gpt2({.vocab_size = tokenizer->vocab_size(),
                     .context = context,
                     .layers = 1,
                     .heads = 2,
                     .width = 16});
    const auto strategy = make_single_strategy(gpt2.units(), 1);
    save_pretrained(folder, gpt2, *strategy);
  }
  tokenizer->save(folder);
  const nlohmann::json cases = read_json_file(golden + "chat/cases.json");
  for (const nlohmann::json& one : cases["templates"]) {
    if (one["name"] != "llama4") continue;
    write_file_atomically(folder / "chat_template.jinja", one["template"].get<std::string>());
  }
  write_file_atomically(folder / "generation_config.json", R"({"eos_token_id": [3, 50, 97, 150]})");
  return folder;
}

inline ServeOptions serve_options(const std::filesystem::path& model) {
  ServeOptions options;
  options.model = model;
  options.device = "cpu";
  options.threads = 1;
  return options;
}

class ServedModel {
 public:
  explicit ServedModel(const ServeOptions& options)
      : server_(options), thread_([this, options] {
          run_model(options, [this](LanguageModel& model) { server_.run(model); });
        }) {}
  ~ServedModel() {
    server_.stop();
    thread_.join();
  }
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  Server& server() { return server_; }
  int port() const { return server_.http().port(); }

  HttpAnswer ask(const std::string& method, const std::string& path, const std::string& body) {
    HttpClient client(port());
    client.send(method, path, body);
    return client.answer();
  }
  HttpAnswer complete(const nlohmann::json& request) {
    return ask("POST", "/v1/completions", request.dump());
  }
  HttpAnswer chat(const nlohmann::json& request) {
    return ask("POST", "/v1/chat/completions", request.dump());
  }

 private:
  Server server_;
  std::thread thread_;
};

}  // namespace tessera::test
