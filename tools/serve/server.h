// A server of one model, with OpenAI's API.
//
//   GET  /health               the texts that run and wait
//   GET  /v1/models            the model; also by its name behind a slash
//   POST /v1/completions       continues prompts
//   POST /v1/chat/completions  answers a conversation
//
// The server's thread reads requests and writes replies (HttpServer). The model's thread continues texts
// (TextBatch). They exchange jobs and parts of texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/chat_template.h"
#include "models/tokenizers/tokenizer.h"
#include "tools/generate/inference.h"
#include "tools/generate/stop_tokens.h"
#include "tools/http/http_server.h"
#include "tools/serve/completion_request.h"
#include "tools/serve/text_batch.h"
#include "tools/serve/text_exchange.h"

namespace tessera {

struct ServeOptions : InferenceOptions {
  std::string host = "127.0.0.1";
  /// 0: any free port.
  int port = 0;
  /// The most texts that are continued at the same time.
  std::int64_t batch = 16;
  /// The most texts that wait for a place among them. A request beyond is refused with status 429.
  std::int64_t queue = 1024;
};

class Server {
 public:
  /// Reads the tokenizer, the chat template and the stop tokens, and takes the port. Raises Error if the
  /// model has no tokenizer. Without a known chat template chats are refused.
  explicit Server(const ServeOptions& options);

  const HttpServer& http() const { return http_; }
  TextBatch& batch() { return batch_; }

  /// Serves the model on the calling thread until stop(), or until a SIGINT or SIGTERM. Calls `ready`
  /// once signals and clients get answers.
  void run(
      LanguageModel& model, const std::function<void()>& ready = [] {});
  /// No more requests are accepted; those that were are answered. Any thread may call it.
  void stop();
  /// The signal that stopped it, or 0.
  int stop_signal() const { return stop_signal_; }

 private:
  using Reply = std::shared_ptr<HttpReply>;

  /// Calls the function for the path, and sends its errors.
  void handle(const HttpRequest& request, const Reply& reply);
  void route(const HttpRequest& request, const Reply& reply);
  std::string health_json() const;
  /// The list of models, or the one in it.
  std::string models_json(bool one) const;
  void complete(const std::string& body, bool chat, const Reply& reply);
  /// Raises ApiError of status 404 if the request names another model.
  void check_model(const CompletionRequest& request) const;
  ReplyHead new_head(bool chat);
  /// Raises ApiError of status 429 or 503 if the batch takes no more texts.
  void submit(std::vector<TextJob> jobs);
  /// The prompts as tokens. Raises ApiError if one does not fit into the context.
  std::vector<Prompt> encoded(const CompletionRequest& request) const;
  TextJob job_for(const CompletionRequest& request, const Prompt& prompt, std::uint64_t seed) const;
  void check_fits(const CompletionRequest& request, std::size_t prompt_tokens) const;

  ServeOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::string no_chat_;  // the reason for no chat_
  StopTokens stop_tokens_;
  std::int64_t created_;
  std::string id_;  // the beginning of the replies' ids
  std::int64_t replies_ = 0;
  std::int64_t context_ = 0;
  std::int64_t vocab_size_ = 0;
  int stop_signal_ = 0;
  TextBatch batch_;
  HttpServer http_;
};

}  // namespace tessera
