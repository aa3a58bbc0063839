#include "tools/generate/growing_text.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/check.h"

namespace tessera {

GrowingText::GrowingText(const GrowthOptions& options, const TransformerShape& shape,
                         std::vector<std::int32_t> prompt)
    : options_(options),
      context_(shape.context),
      prompt_(static_cast<std::int64_t>(prompt.size())),
      ids_(std::move(prompt)),
      // The last token is not read.
      cache_(shape, prompt_ + options.tokens - 1) {
  check(!options.score_prompt || prompt_ + options.tokens - 1 <= context_,
        "a text of {} tokens is longer than the model's context of {}", prompt_ + options.tokens,
        context_);
}

bool GrowingText::finished() const {
  const bool has_scores =
      !options_.score_prompt || static_cast<std::int64_t>(scores_.size()) >= prompt_ - 1;
  return stopped_ || (new_tokens() >= options_.tokens && has_scores);
}

std::int64_t GrowingText::unread() const {
  return (options_.tokens > 0 ? size() : prompt_ - 1) - read_;
}

NewTokens GrowingText::read(std::int64_t most) {
  if (cache_.length + unread() > context_) {
    read_ = std::max<std::int64_t>(0, size() - std::max<std::int64_t>(1, context_ / 2));
    cache_.length = 0;
  }
  const std::int64_t count = std::min(most, unread());
  const auto tokens = std::span<const std::int32_t>(ids_).subspan(static_cast<std::size_t>(read_),
                                                                  static_cast<std::size_t>(count));
  const bool scored = options_.score_prompt && reads_prompt();
  read_ += count;
  return {Tensor::from(tokens, {count}), &cache_, scored ? count : 1};
}

std::optional<std::int32_t> GrowingText::add(const Tensor& logits) {
  const std::int64_t rows = logits.size(0), first = read_ + 1 - rows;  // the token after row 0
  if (options_.score_prompt && first < prompt_) {
    add_scores(logits, first, std::min(rows, prompt_ - first));
  }
  if (read_ < size()) return std::nullopt;
  const Tensor last = logits.slice(rows - 1, rows);
  const std::vector<float> values = last.to_vector<float>();
  // Ids beyond the tokenizer's have no text.
  const auto choices =
      static_cast<std::size_t>(options_.choices > 0 ? options_.choices : logits.size(1));
  const auto token = static_cast<std::int32_t>(
      sample(std::span(values).first(choices), options_.sampling,
             RandomStream(options_.seed, "sampling"), static_cast<std::uint64_t>(new_tokens())));
  ids_.push_back(token);
  add_scores(last, read_, 1);
  stopped_ = options_.stop.contains(token);
  return stopped_ ? std::nullopt : std::optional(token);
}

void GrowingText::add_scores(const Tensor& logits, std::int64_t first_token, std::int64_t count) {
  if (count == 0) return;
  const auto tokens = std::span<const std::int32_t>(ids_).subspan(
      static_cast<std::size_t>(first_token), static_cast<std::size_t>(count));
  for (TokenScore& score : score_tokens(logits.slice(0, count), tokens, options_.likeliest)) {
    scores_.push_back(std::move(score));
  }
}

}  // namespace tessera
