#include "tools/serve/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "models/hugging_face.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/serve/api_error.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::uint64_t random_seed() {
  return std::random_device()();
}

std::filesystem::path folder_of(const ServeOptions& options) {
  return tokenizer_folder(find_model(options.model, options.adapter));
}

}  // namespace

Server::Server(const ServeOptions& options)
    : options_(options),
      tokenizer_(Tokenizer::load(folder_of(options))),
      stop_tokens_(stop_tokens_of(folder_of(options), tokenizer_.get())),
      created_(seconds_since_1970()),
      id_(fmt::format("{:08x}", random_seed())),
      batch_(*tokenizer_, options.batch, options.queue),
      http_({.host = options.host, .port = options.port},
            [this](const HttpRequest& request, const Reply& reply) { handle(request, reply); }) {
  try {
    chat_ = ChatTemplate::of(folder_of(options));
  } catch (const Error& error) {
    no_chat_ = error.what();
  }
}

void Server::run(LanguageModel& model, const std::function<void()>& ready) {
  context_ = model.shape().context;
  vocab_size_ = model.shape().vocab_size;
  check(tokenizer_->vocab_size() <= vocab_size_,
        "{}: vocabulary mismatch: the tokenizer has {} tokens, the model {}",
        options_.model.string(), tokenizer_->vocab_size(), vocab_size_);
  http_.on_stop_signal([this](int signal) {
    stop_signal_ = signal;
    stop();
  });
  std::thread http([this] { http_.run(); });
  ready();
  batch_.run(model);
  http_.finish();
  http.join();
}

void Server::stop() {
  http_.stop_accepting();
  batch_.end();
}

void Server::handle(const HttpRequest& request, const Reply& reply) {
  try {
    route(request, reply);
  } catch (const ApiError& error) {
    reply->send(error.status(), error.json());
  } catch (const std::exception& error) {
    reply->send(500, ApiError(500, error.what()).json());
  }
}

void Server::route(const HttpRequest& request, const Reply& reply) {
  const bool completes = request.path == "/v1/completions";
  const bool chats = request.path == "/v1/chat/completions";
  const bool describes = request.path == "/v1/models/" + options_.model.string();
  const bool lists = request.path == "/health" || request.path == "/v1/models" || describes;
  if (!completes && !chats && !lists) {
    throw ApiError(404, fmt::format("there is no {}", excerpt(request.path)), "unknown_url");
  }
  const std::string method = lists ? "GET" : "POST";
  if (request.method != method) {
    throw ApiError(405, fmt::format("{} takes {}, not {}", request.path, method, request.method));
  }
  if (request.too_long) {
    throw ApiError(413, fmt::format("the body is longer than {} bytes", HttpServer::kMostBody));
  }
  if (lists) {
    reply->send(200, request.path == "/health" ? health_json() : models_json(describes));
  } else {
    complete(request.body, chats, reply);
  }
}

std::string Server::health_json() const {
  const TextBatch::Load load = batch_.load();
  return Json{{"status", "ok"},
              {"running", load.running},
              {"waiting", load.waiting},
              {"finished", load.finished},
              {"cancelled", load.cancelled}}
      .dump();
}

std::string Server::models_json(bool one) const {
  const Json model = {{"id", options_.model.string()},
                      {"object", "model"},
                      {"created", created_},
                      {"owned_by", "tessera"},
                      {"max_model_len", context_}};
  return (one ? model : Json{{"object", "list"}, {"data", Json::array({model})}}).dump();
}

void Server::complete(const std::string& body, bool chat, const Reply& reply) {
  const CompletionRequest request = read_completion_request(body, chat);
  check_model(request);
  const std::vector<Prompt> prompts = encoded(request);
  const auto count = static_cast<std::int64_t>(prompts.size()) * request.n;
  check_request(count <= options_.queue, "the request asks for {} texts; at most {} may wait",
                count, options_.queue);
  const std::uint64_t seed = request.seed ? *request.seed : random_seed();
  std::vector<TextJob> jobs;
  std::vector<TextExchange::Text> texts;
  std::int64_t prompt_tokens = 0;
  for (const Prompt& prompt : prompts) {
    prompt_tokens += static_cast<std::int64_t>(prompt.ids.size());
    for (std::int64_t i = 0; i < request.n; ++i) {
      jobs.push_back(job_for(request, prompt, seed + static_cast<std::uint64_t>(i)));
      texts.push_back({.first_token = prompt.ids.front(), .prompt = prompt.text});
    }
  }
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto exchange = std::make_shared<TextExchange>(
      *tokenizer_, request, new_head(chat), std::move(texts), prompt_tokens, reply, cancelled);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].cancelled = cancelled;
    jobs[i].deliver = [this, exchange, i](TextPart part) {
      http_.post(
          [exchange, i, part = std::move(part)]() mutable { exchange->add(i, std::move(part)); });
    };
  }
  submit(std::move(jobs));
}

void Server::check_model(const CompletionRequest& request) const {
  const std::string name = options_.model.string();
  if (request.model.empty() || request.model == name) return;
  throw ApiError(
      404,
      fmt::format("the model {} does not exist; this server has {}", excerpt(request.model), name),
      "model_not_found");
}

ReplyHead Server::new_head(bool chat) {
  return {.chat = chat,
          .id = fmt::format("{}-{}{:06}", chat ? "chatcmpl" : "cmpl", id_, replies_++),
          .created = seconds_since_1970(),
          .model = options_.model.string()};
}

void Server::submit(std::vector<TextJob> jobs) {
  switch (batch_.submit(std::move(jobs))) {
    case TextBatch::Answer::accepted:
      return;
    case TextBatch::Answer::full:
      throw ApiError(
          429,
          fmt::format("{} texts may wait, and there is no room: try again later", options_.queue),
          "rate_limit_exceeded");
    case TextBatch::Answer::ended:
      throw ApiError(503, "the server is stopping");
  }
}

std::vector<Prompt> Server::encoded(const CompletionRequest& request) const try {
  std::vector<Prompt> prompts = request.prompts;
  if (request.chat) {
    check_request(chat_.has_value(), "this model cannot chat: {}", no_chat_);
    prompts.push_back({.text = {}, .ids = tokenizer_->encode(chat_->render(request.messages))});
  }
  for (Prompt& prompt : prompts) {
    const bool is_text = prompt.ids.empty();
    if (is_text) {
      prompt.ids = tokenizer_->with_special_tokens(tokenizer_->encode(prompt.text));
    }
    check_ids(prompt.ids, vocab_size_);
    check_fits(request, prompt.ids.size());
    // Every id must have a text.
    if (!is_text) prompt.text = repaired_utf8(tokenizer_->decode(prompt.ids));
    if (!request.echo) prompt.text.clear();
  }
  return prompts;
} catch (const ApiError&) {
  throw;
} catch (const Error& error) {
  throw ApiError(400, error.what());
}

void Server::check_fits(const CompletionRequest& request, std::size_t prompt_tokens) const {
  const auto prompt = static_cast<std::int64_t>(prompt_tokens);
  const std::int64_t tokens = request.tokens.value_or(1);
  if (prompt + tokens <= context_) return;
  throw ApiError(400,
                 fmt::format("the model's context has {} tokens; the prompt has {}, and {} more "
                             "are asked for",
                             context_, prompt, tokens),
                 "context_length_exceeded");
}

TextJob Server::job_for(const CompletionRequest& request, const Prompt& prompt,
                        std::uint64_t seed) const {
  const auto room = context_ - static_cast<std::int64_t>(prompt.ids.size());
  TextJob job;
  job.prompt = prompt.ids;
  job.growth = {.sampling = request.sampling,
                .tokens = request.tokens.value_or(room),
                .seed = seed,
                .stop = stop_tokens_,
                .choices = tokenizer_->vocab_size(),
                .likeliest = request.likeliest.value_or(0),
                .score_prompt = request.echo && request.likeliest.has_value()};
  job.stop_texts = request.stop;
  return job;
}

}  // namespace tessera
