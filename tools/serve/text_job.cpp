#include "tools/serve/text_job.h"

#include <utility>

namespace tessera {

RunningText::RunningText(const Tokenizer& tokenizer, const TransformerShape& shape, TextJob job)
    : job_(std::move(job)),
      growing_(job_.growth, shape, job_.prompt),
      stream_(tokenizer, job_.prompt),
      stop_(job_.stop_texts) {}

void RunningText::add(const Tensor& logits) {
  const std::optional<std::int32_t> token = growing_.add(logits);
  TextPart next;
  if (token) next.text = stop_.push(stream_.push(*token));
  if (growing_.finished() && !stop_.stopped()) {
    next.text += stop_.push(stream_.finish());
    next.text += stop_.finish();
  }
  const auto& scores = growing_.scores();
  next.scores.assign(scores.begin() + static_cast<std::ptrdiff_t>(delivered_), scores.end());
  delivered_ = scores.size();
  next.tokens = growing_.new_tokens();
  if (finished()) {
    next.finish = growing_.stopped() || stop_.stopped() ? Finish::stop : Finish::length;
  }
  job_.deliver(std::move(next));
}

void RunningText::deliver_end() {
  job_.deliver({.finish = Finish::length});
}

void RunningText::fail(const std::string& message) {
  failed_ = true;
  job_.deliver({.finish = Finish::error, .tokens = growing_.new_tokens(), .message = message});
}

}  // namespace tessera
