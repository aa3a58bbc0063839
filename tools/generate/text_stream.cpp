#include "tools/generate/text_stream.h"

#include <span>
#include <utility>

namespace tessera {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::int32_t> prompt)
    : tokenizer_(tokenizer), tokens_(std::move(prompt)), shown_(tokens_.size()) {}

std::string TextStream::push(std::int32_t token) {
  tokens_.push_back(token);
  std::string fresh = fresh_text();
  if (fresh.empty() || fresh.ends_with("\uFFFD")) return {};
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(shown_));
  shown_ = tokens_.size();
  return fresh;
}

std::string TextStream::finish() {
  std::string fresh = fresh_text();
  shown_ = tokens_.size();
  return fresh;
}

std::string TextStream::fresh_text() const {
  const std::size_t before = tokenizer_.decode(std::span(tokens_).first(shown_)).size();
  const std::string all = tokenizer_.decode(tokens_);
  return before < all.size() ? all.substr(before) : std::string();
}

}  // namespace tessera
