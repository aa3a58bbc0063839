// tessera serve as clients see it.
#include <catch2/catch.hpp>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "models/tokenizers/utf8.h"
#include "tests/support/waiting.h"
#include "tests/tools/served_model.h"
#include "tools/generate/generate.h"
#include "tools/generate/score.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::HttpAnswer;
using test::HttpClient;
using test::ServedModel;

/// The texts that `generate` adds to prompts.
std::vector<std::string> generated(const std::filesystem::path& model,
                                   const std::vector<std::string>& prompts, std::uint64_t seed,
                                   const SamplingOptions& sampling) {
  GenerateOptions options = {.model = model,
                             .sampling = sampling,
                             .tokens = 24,
                             .seed = seed,
                             .threads = 1,
                             .device = "cpu"};
  for (const std::string& prompt : prompts) options.prompts.push_back({.text = prompt, .ids = {}});
  std::vector<std::string> texts;
  for (const Generated& one : generate(options, [](std::string_view) {})) {
    texts.push_back(repaired_utf8(one.text.value().substr(prompts[texts.size()].size())));
  }
  return texts;
}

json ok(const HttpAnswer& answer) {
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  return parse_json(answer.body);
}

/// The text of a streamed completion. Every part must be valid UTF-8, and the last one the end.
std::string streamed_text(const HttpAnswer& answer, bool chat = false) {
  CHECK(answer.status == 200);
  REQUIRE(answer.events.size() >= 2);
  CHECK(answer.events.back() == "[DONE]");
  std::string text, finish;
  for (std::size_t i = 0; i + 1 < answer.events.size(); ++i) {
    CHECK(finish.empty());
    const json choice = parse_json(answer.events[i])["choices"][0];
    text += chat ? choice["delta"].value("content", "") : choice["text"].get<std::string>();
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
  }
  CHECK_FALSE(finish.empty());
  return text;
}

/// A text that holds the only row of a batch until release().
class HeldBatch {
 public:
  explicit HeldBatch(TextBatch& batch) {
    TextJob job;
    job.prompt = {1};
    job.growth.tokens = 1;
    job.cancelled = std::make_shared<std::atomic<bool>>(false);
    // The thread of the batch may get here after the end of this object.
    job.deliver = [promises = promises_](const TextPart&) {
      promises->held.set_value();
      promises->released.get_future().wait();
    };
    std::vector<TextJob> jobs;
    jobs.push_back(std::move(job));
    batch.submit(std::move(jobs));
    promises_->held.get_future().wait();
  }
  void release() { promises_->released.set_value(); }

 private:
  struct Promises {
    std::promise<void> held, released;
  };
  const std::shared_ptr<Promises> promises_ = std::make_shared<Promises>();
};

}  // namespace

TEST_CASE("a hundred clients at once get the texts of generate") {
  const test::TemporaryDirectory folder;
  const auto model = test::save_chat_model(folder.path() / "model");
  const std::vector<std::string> prompts = {"The fox", "日本 jumps", "a", "over  it 😀 and on"};
  const std::vector<SamplingOptions> samplings = {{},
                                                  {.temperature = 0.0},
                                                  {.temperature = 1.4, .top_k = 40},
                                                  {.top_p = 0.8},
                                                  {.temperature = 0.7}};
  std::vector<std::vector<std::string>> expected;
  for (std::size_t seed = 0; seed < samplings.size(); ++seed) {
    expected.push_back(generated(model, prompts, seed, samplings[seed]));
  }
  ServedModel served(test::serve_options(model));
  std::vector<std::thread> clients;
  std::vector<HttpAnswer> answers(100);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    clients.emplace_back([&, i] {
      const SamplingOptions& sampling = samplings[i % 5];
      answers[i] = served.complete({{"prompt", prompts[i % 4]},
                                    {"max_tokens", 24},
                                    {"seed", i % 5},
                                    {"temperature", sampling.temperature},
                                    {"top_k", sampling.top_k},
                                    {"top_p", sampling.top_p},
                                    {"stream", i % 3 == 0}});
    });
  }
  for (std::thread& client : clients) client.join();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    CAPTURE(i, answers[i].body);
    const std::string text = i % 3 == 0 ? streamed_text(answers[i])
                                        : ok(answers[i])["choices"][0]["text"].get<std::string>();
    CHECK(text == expected[i % 5][i % 4]);
  }
  test::wait_for("the last row is free",
                 [&] { return served.server().batch().load().finished == 100; });
}

TEST_CASE("a chat's answer is that of generate --chat, whole or in a stream") {
  const test::TemporaryDirectory folder;
  const auto model = test::save_chat_model(folder.path() / "model");
  GenerateOptions options = {.model = model, .prompt = "Hello", .tokens = 10, .seed = 3};
  options.device = "cpu";
  options.chat = true;
  options.system = "Be brief.";
  const Generated expected = generate(options, [](std::string_view) {}).front();
  ServedModel served(test::serve_options(model));
  const json parts = {{{"type", "text"}, {"text", "Hel"}}, {{"type", "text"}, {"text", "lo"}}};
  json request = {
      {"messages",
       {{{"role", "developer"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", parts}}}},
      {"max_completion_tokens", 10},
      {"seed", 3},
      {"logprobs", true},
      {"top_logprobs", 1}};
  const json reply = ok(served.chat(request));
  const json& choice = reply["choices"][0];
  CHECK(reply["object"] == "chat.completion");
  CHECK(choice["message"]["role"] == "assistant");
  CHECK(choice["message"]["content"] == *expected.text);
  const std::size_t new_tokens = expected.log_probabilities.size();
  CHECK(choice["finish_reason"] == (new_tokens < 10 ? "stop" : "length"));
  CHECK(reply["usage"]["completion_tokens"] == new_tokens);
  CHECK(reply["usage"]["prompt_tokens"] == expected.ids.size() - new_tokens);
  REQUIRE(choice["logprobs"]["content"].size() == new_tokens);
  for (std::size_t i = 0; i < new_tokens; ++i) {
    CHECK(choice["logprobs"]["content"][i]["logprob"].get<float>() ==
          expected.log_probabilities[i]);
    CHECK(choice["logprobs"]["content"][i]["top_logprobs"].size() == 1);
  }
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  HttpAnswer answer = served.chat(request);
  const json usage = parse_json(answer.events.end()[-2]);
  CHECK(usage["usage"] == reply["usage"]);
  CHECK(usage["choices"].empty());
  answer.events.erase(answer.events.end() - 2);
  CHECK(parse_json(answer.events[0])["choices"][0]["delta"]["role"] == "assistant");
  CHECK(streamed_text(answer, /*chat=*/true) == *expected.text);
}

TEST_CASE("an echoed prompt has the log-probabilities of score, and the tokens' places") {
  const test::TemporaryDirectory folder;
  const auto model = test::save_chat_model(folder.path() / "model");
  const std::vector<std::int32_t> ids = {5, 300, 17, 421, 80, 999, 3, 64};
  const auto scores =
      score({.model = model, .device = "cpu", .threads = 1}, {ids}).log_probabilities.front();
  ServedModel served(test::serve_options(model));
  const int new_tokens = GENERATE(0, 1);  // harnesses send either
  const json reply = ok(served.complete({{"prompt", {ids, ids}},
                                         {"max_tokens", new_tokens},
                                         {"temperature", 0},
                                         {"logprobs", 1},
                                         {"echo", true}}));
  REQUIRE(reply["choices"].size() == 2);
  const auto tokenizer = Tokenizer::load(model);
  for (const json& choice : reply["choices"]) {
    const json& logprobs = choice["logprobs"];
    const auto count = ids.size() + static_cast<std::size_t>(new_tokens);
    for (const char* const list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      CAPTURE(list);
      REQUIRE(logprobs[list].size() == count);
    }
    CHECK(logprobs["token_logprobs"][0].is_null());
    CHECK(logprobs["top_logprobs"][0].is_null());
    for (std::size_t i = 1; i < ids.size(); ++i) {
      CHECK(logprobs["token_logprobs"][i].get<float>() == scores[i - 1]);
      float best = -1e9F;
      for (const auto& [token, value] : logprobs["top_logprobs"][i].items()) {
        best = std::max(best, value.get<float>());
      }
      CHECK(best >= scores[i - 1]);
    }
    if (new_tokens > 0) {  // chosen as the likeliest: the one in its dictionary
      CHECK(logprobs["top_logprobs"].back().size() == 1);
      CHECK(logprobs["top_logprobs"].back().front() == logprobs["token_logprobs"].back());
    }
    CHECK_THAT(choice["text"].get<std::string>(),
               Catch::StartsWith(tokenizer->decode(ids).substr(0, 4)));
    CHECK(logprobs["text_offset"][0] == 0);
  }
  CHECK(reply["usage"]["prompt_tokens"] == 2 * ids.size());
  CHECK(reply["usage"]["completion_tokens"] == 2 * new_tokens);
}

TEST_CASE("a text ends before a stop text, and n texts have the seeds that follow") {
  const test::TemporaryDirectory folder;
  const auto model = test::save_chat_model(folder.path() / "model");
  const std::string whole = generated(model, {"The fox"}, 1, {}).front();
  REQUIRE(whole.size() > 6);
  ServedModel served(test::serve_options(model));
  json request = {{"prompt", "The fox"}, {"max_tokens", 24}, {"seed", 0}, {"n", 2}};
  const json both = ok(served.complete(request))["choices"];
  REQUIRE(both.size() == 2);
  CHECK(both[1]["text"] == whole);
  request["seed"] = 1;
  request["n"] = 1;
  std::size_t cut = 3;  // at a character
  while ((static_cast<unsigned char>(whole[cut]) & 0xc0) == 0x80) ++cut;
  std::size_t end = cut + 2;
  while (end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xc0) == 0x80) ++end;
  const std::string stop = whole.substr(cut, end - cut);
  request["stop"] = {"never", stop};
  for (const bool stream : {false, true}) {
    request["stream"] = stream;
    const HttpAnswer answer = served.complete(request);
    const std::string text =
        stream ? streamed_text(answer) : ok(answer)["choices"][0]["text"].get<std::string>();
    CHECK(text == whole.substr(0, whole.find(stop)));
    if (!stream) CHECK(ok(answer)["choices"][0]["finish_reason"] == "stop");
  }
}

TEST_CASE("a bad request gets one error that says the mistake, and the server goes on") {
  const test::TemporaryDirectory folder;
  const auto model = test::save_chat_model(folder.path() / "model");
  ServedModel served(test::serve_options(model));
  struct Bad {
    std::string path, body;
    int status;
    std::string message;
  };
  const std::string one = "/v1/completions", chat = "/v1/chat/completions";
  const std::vector<Bad> all = {
      {one, "", 400, "not JSON"},
      {one, "{\"prompt\": \"a\"", 400, "not JSON"},
      {one, "[]", 400, "expected a JSON object"},
      {one, "{}", 400, "'prompt' is missing"},
      {one, std::string(100'000, '['), 400, "more than 64 levels deep"},
      {one, R"({"prompt": "a", "prompt": "b"})", 400, "twice"},
      {one, "{\"prompt\": \"\xff\"}", 400, "not JSON"},
      {one, R"({"prompt": "\ud800"})", 400, "not JSON"},
      {one, std::string("{\"prompt\": \"a\"}\0", 16), 400, "zero byte"},
      {one, R"({"prompt": 3})", 400, "a prompt is 3"},
      {one, R"({"prompt": [1, "a"]})", 400, "a prompt is of type array"},
      {one, R"({"prompt": []})", 400, "a prompt is of type array"},
      {one, R"({"prompt": ["a", [1.5]]})", 400, "a prompt is of type array"},
      {one, R"({"prompt": [-1]})", 400, "a prompt is of type array"},
      {one, R"({"prompt": [9999]})", 400, "token 9999 is outside the model's vocabulary"},
      {one, R"({"prompt": [99999999999999999999]})", 400, "a prompt is of type array"},
      {one, R"({"prompt": "a", "max_tokens": 1e400})", 400, "not JSON"},
      {one, R"({"prompt": "a", "max_tokens": 99999999999999999999})", 400, "'max_tokens' is"},
      {one, R"({"prompt": "a", "max_tokens": -1})", 400, "'max_tokens' is"},
      {one, R"({"prompt": "a", "max_tokens": 1.5})", 400, "'max_tokens' is"},
      {one, R"({"prompt": "a", "max_tokens": 2000000000})", 400, "context has 256 tokens"},
      {one, R"({"prompt": "a", "temperature": -1})", 400, "'temperature' is -1"},
      {one, R"({"prompt": "a", "temperature": "hot"})", 400, "'temperature' is"},
      {one, R"({"prompt": "a", "top_p": 0})", 400, "'top_p' is 0"},
      {one, R"({"prompt": "a", "n": 0})", 400, "'n' is 0"},
      {one, R"({"prompt": "a", "n": 1000000})", 400, "'n' is"},
      {one, R"({"prompt": "a", "seed": -1})", 400, "'seed' is -1"},
      {one, R"({"prompt": "a", "stop": [1]})", 400, "'stop' is"},
      {one, R"({"prompt": "a", "stop": 7})", 400, "'stop' is 7"},
      {one, R"({"prompt": "a", "logprobs": true})", 400, "'logprobs' is of type boolean"},
      {one, R"({"prompt": "a", "stream": 1})", 400, "'stream' is 1"},
      {one, R"({"prompt": "a", "logit_bias": {"5": 1}})", 400, "'logit_bias' is not supported"},
      {one, R"({"prompt": "a", "colour": "red"})", 400, "unknown field \"colour\""},
      {one, R"({"prompt": "a", "model": "gpt-4"})", 404, "gpt-4"},
      {one, json{{"prompt", std::string(1 << 20, 'a')}}.dump(), 400, "context has 256 tokens"},
      {one, json{{"prompt", std::vector<int>(400'000, 5)}}.dump(), 400, "context has 256 tokens"},
      {one, json{{"prompt", std::string(5 << 20, 'a')}}.dump(), 413, "longer than"},
      {one, json{{"prompt", std::vector<std::string>(1025, "a")}}.dump(), 400, "1025 texts"},
      {chat, "{}", 400, "'messages' is missing"},
      {chat, R"({"messages": []})", 400, "'messages' is missing"},
      {chat, R"({"messages": [3]})", 400, "a message is 3"},
      {chat, R"({"messages": [{"role": "user", "content": 3}]})", 400, "'content' is 3"},
      {chat, R"({"messages": [{"role": "robot", "content": "a"}]})", 400, "robot"},
      {chat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", 400,
       "image_url"},
      {chat, R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 1})", 400,
       "needs 'logprobs'"},
      {chat, R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", 400,
       "'tools' is not supported"},
      {"/v1/embeddings", "{}", 404, "/v1/embeddings"},
      {"/health", "{}", 405, "takes GET"},
  };
  for (const Bad& bad : all) {
    CAPTURE(bad.path, bad.body.substr(0, 100));
    const HttpAnswer answer = served.ask("POST", bad.path, bad.body);
    CHECK(answer.status == bad.status);
    const json error = parse_json(answer.body)["error"];
    CHECK_THAT(error["message"].get<std::string>(), Contains(bad.message));
    CHECK(error["message"].get<std::string>().size() < 300);
    CHECK(error["type"] == "invalid_request_error");
  }
  HttpClient garbage(served.port());
  garbage.send_bytes("\x16\x03\x01 GET nothing\r\n\r\n");
  CHECK(garbage.answer().status == 400);
  const json absent = {{"prompt", "a"}, {"max_tokens", 1}, {"colour", nullptr}};
  CHECK(ok(served.complete(absent))["choices"].size() == 1);
  CHECK(ok(served.ask("GET", "/health", ""))["status"] == "ok");
  CHECK(ok(served.ask("GET", "/v1/models?x=1", ""))["data"][0]["id"] == model.string());
  std::string name = model.string();
  for (std::size_t at; (at = name.find('/')) != name.npos;) name.replace(at, 1, "%2F");
  CHECK(ok(served.ask("GET", "/v1/models/" + name, ""))["id"] == model.string());
  CHECK(served.ask("GET", "/v1/models/%ff", "").status == 404);
}

TEST_CASE("a request beyond the queue is refused, and those before it are answered") {
  const test::TemporaryDirectory folder;
  ServeOptions options = test::serve_options(test::save_chat_model(folder.path() / "model"));
  options.batch = 1;
  options.queue = 2;
  ServedModel served(options);
  HeldBatch held(served.server().batch());
  const json request = {{"prompt", "a"}, {"max_tokens", 2}, {"n", 2}};
  auto waits = std::async(std::launch::async, [&] { return served.complete(request); });
  test::wait_for("both texts wait", [&] { return served.server().batch().load().waiting == 2; });
  const HttpAnswer refused = served.complete(request);
  CHECK(refused.status == 429);
  CHECK(parse_json(refused.body)["error"]["code"] == "rate_limit_exceeded");
  held.release();
  CHECK(ok(waits.get())["choices"].size() == 2);
}

TEST_CASE("the row of a client that is gone is free again, whether it waits or reads a stream") {
  const test::TemporaryDirectory folder;
  ServeOptions options = test::serve_options(test::save_chat_model(folder.path() / "model"));
  options.batch = 1;
  ServedModel served(options);
  TextBatch& batch = served.server().batch();
  {
    HeldBatch held(batch);
    {
      HttpClient client(served.port());
      client.send("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 100, "n": 3})");
      test::wait_for("its texts wait", [&] { return batch.load().waiting == 3; });
    }
    // A submission finds texts without a client.
    test::wait_for("the server knows", [&] {
      CHECK(batch.submit({}) == TextBatch::Answer::accepted);
      return batch.load().cancelled == 3;
    });
    held.release();
  }
  {
    HttpClient client(served.port());
    client.send("POST", "/v1/completions",
                R"({"prompt": "a", "max_tokens": 100, "n": 100, "stream": true})");
    client.read_until("data: ");
  }
  CHECK(ok(served.complete({{"prompt", "a"}, {"max_tokens", 2}}))["choices"].size() == 1);
  test::wait_for("every text is counted", [&] {
    const TextBatch::Load load = batch.load();
    return load.finished + load.cancelled == 1 + 3 + 100 + 1;
  });
  CHECK(batch.load().cancelled > 3);
}

TEST_CASE("a server that stops answers the requests that it has, and takes no more") {
  const test::TemporaryDirectory folder;
  ServeOptions options = test::serve_options(test::save_chat_model(folder.path() / "model"));
  options.batch = 1;
  std::future<HttpAnswer> waits;
  int port = 0;
  {
    ServedModel served(options);
    port = served.port();
    HttpClient early(port);
    HeldBatch held(served.server().batch());
    waits = std::async(std::launch::async, [&] {
      return served.complete({{"prompt", "a"}, {"max_tokens", 2}});
    });
    test::wait_for("it waits", [&] { return served.server().batch().load().waiting == 1; });
    served.server().stop();
    early.send("POST", "/v1/completions", R"({"prompt": "a"})");
    CHECK(early.answer().status == 503);
    held.release();
    CHECK(waits.get().status == 200);
  }
  CHECK_THROWS_WITH(HttpClient(port), Contains("no server listens"));
}

TEST_CASE("a model without a chat template completes texts, and says why it does not chat") {
  const test::TemporaryDirectory folder;
  const auto model = test::save_chat_model(folder.path() / "model");
  std::filesystem::remove(model / "chat_template.jinja");
  ServedModel served(test::serve_options(model));
  const HttpAnswer answer = served.ask("POST", "/v1/chat/completions",
                                       R"({"messages": [{"role": "user", "content": "a"}]})");
  CHECK(answer.status == 400);
  CHECK_THAT(answer.body, Contains("this model cannot chat") && Contains("no chat template here"));
  CHECK(ok(served.complete({{"prompt", "a"}}))["usage"]["prompt_tokens"].get<int>() >= 1);
}

TEST_CASE("an address that cannot be had is one error") {
  const test::TemporaryDirectory folder;
  ServeOptions options = test::serve_options(test::save_chat_model(folder.path() / "model"));
  const Server first(options);
  CHECK(first.http().is_loopback());
  options.port = first.http().port();
  CHECK_THROWS_WITH(Server(options), Contains("Address already in use; choose another port"));
  options.port = 70000;
  CHECK_THROWS_WITH(Server(options), Contains("--port 70000: expected 0 to 65535"));
  options.port = 0;
  options.host = "example.com";
  CHECK_THROWS_WITH(Server(options), Contains("--host example.com: expected"));
  options.host = "0.0.0.0";
  CHECK_FALSE(Server(options).http().is_loopback());
}

}  // namespace tessera
