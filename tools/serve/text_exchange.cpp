#include "tools/serve/text_exchange.h"

#include <iterator>
#include <utility>

#include "tools/serve/api_error.h"

namespace tessera {

TextExchange::TextExchange(const Tokenizer& tokenizer, const CompletionRequest& request,
                           ReplyHead head, std::vector<Text> texts, std::int64_t prompt_tokens,
                           std::shared_ptr<HttpReply> reply,
                           std::shared_ptr<std::atomic<bool>> cancelled)
    : tokenizer_(tokenizer),
      echo_(request.echo),
      stream_(request.stream),
      stream_usage_(request.stream_usage),
      has_scores_(request.likeliest.has_value()),
      head_(std::move(head)),
      texts_(std::move(texts)),
      prompt_tokens_(prompt_tokens),
      reply_(std::move(reply)),
      cancelled_(std::move(cancelled)),
      unfinished_(texts_.size()) {
  reply_->when_gone([cancelled = cancelled_] { *cancelled = true; });
}

void TextExchange::add(std::size_t index, TextPart part) {
  if (*cancelled_) return;
  if (part.finish == Finish::error) return fail(part.message);
  if (!has_scores_) part.scores.clear();
  TextPart& all = texts_[index].parts;
  all.tokens = part.tokens;
  all.finish = part.finish;
  if (part.finish) --unfinished_;
  if (stream_) return send_part(index, std::move(part));
  all.text += part.text;
  std::move(part.scores.begin(), part.scores.end(), std::back_inserter(all.scores));
  if (unfinished_ == 0) send_whole();
}

ReplyText TextExchange::reply_text(std::size_t index, const TextPart& part) {
  Text& text = texts_[index];
  ReplyText reply = {
      .index = static_cast<std::int64_t>(index), .text = part.text, .finish = part.finish};
  if (!has_scores_) return reply;
  std::optional<std::int32_t> first;
  if (echo_ && !text.has_begun) first = text.first_token;
  reply.log_probabilities =
      log_probabilities_json(head_.chat, tokenizer_, part.scores, text.offset, first);
  return reply;
}

void TextExchange::send_part(std::size_t index, TextPart part) {
  Text& text = texts_[index];
  const bool begins = !text.has_begun;
  if (begins && unstarted_) reply_->begin_events();
  unstarted_ = false;
  if (begins) part.text.insert(0, text.prompt);
  const bool is_empty = part.text.empty() && part.scores.empty() && !part.finish;
  if (begins || !is_empty) reply_->send_event(chunk_json(head_, reply_text(index, part), begins));
  text.has_begun = true;
  if (unfinished_ > 0) return;
  if (stream_usage_) reply_->send_event(usage_chunk_json(head_, counts()));
  reply_->send_event("[DONE]");
  reply_->end_events();
}

void TextExchange::send_whole() {
  std::vector<ReplyText> texts;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    texts_[i].parts.text.insert(0, texts_[i].prompt);
    texts.push_back(reply_text(i, texts_[i].parts));
  }
  reply_->send(200, reply_json(head_, texts, counts()));
}

void TextExchange::fail(const std::string& message) {
  *cancelled_ = true;  // the other texts
  const ApiError error(500, message);
  if (unstarted_) return reply_->send(error.status(), error.json());
  reply_->send_event(error.json());
  reply_->end_events();
}

TokenCounts TextExchange::counts() const {
  TokenCounts counts = {.prompt = prompt_tokens_};
  for (const Text& text : texts_) counts.completion += text.parts.tokens;
  return counts;
}

}  // namespace tessera
