// A request with texts in the making, and its reply.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/http/http_server.h"
#include "tools/serve/completion_reply.h"
#include "tools/serve/completion_request.h"

namespace tessera {

/// It gathers the parts of its texts, which come in any order, and sends the reply when all texts are
/// there; or it sends each part as an event. All calls are on the server's thread.
class TextExchange {
 public:
  struct Text {
    /// The prompt's, which has no score.
    std::int32_t first_token = 0;
    /// The prompt's text, where the reply repeats it.
    std::string prompt;
    TextPart parts = {};  // joined
    std::int64_t offset = 0;
    bool has_begun = false;
  };

  /// `prompt_tokens` counts each prompt once. `cancelled` is set if the client is gone.
  TextExchange(const Tokenizer& tokenizer, const CompletionRequest& request, ReplyHead head,
               std::vector<Text> texts, std::int64_t prompt_tokens,
               std::shared_ptr<HttpReply> reply, std::shared_ptr<std::atomic<bool>> cancelled);

  /// Takes a part of text number `index`.
  void add(std::size_t index, TextPart part);

 private:
  ReplyText reply_text(std::size_t index, const TextPart& part);
  void send_part(std::size_t index, TextPart part);
  void send_whole();
  void fail(const std::string& message);
  TokenCounts counts() const;

  const Tokenizer& tokenizer_;
  bool echo_, stream_, stream_usage_, has_scores_;
  ReplyHead head_;
  std::vector<Text> texts_;
  std::int64_t prompt_tokens_;
  std::shared_ptr<HttpReply> reply_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  std::size_t unfinished_;  // texts
  bool unstarted_ = true;   // no event has been sent
};

}  // namespace tessera
