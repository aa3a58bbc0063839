#include "tools/serve/stop_text.h"

#include <algorithm>
#include <utility>

#include "models/tokenizers/utf8.h"

namespace tessera {
namespace {

/// The bytes at the text's end that may begin a character: at most three.
std::size_t open_character(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;  // not the first of a character
    const std::size_t whole = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return bytes < whole ? bytes : 0;
  }
  return 0;
}

/// The bytes at the text's end that begin `stop`.
std::size_t open_stop(std::string_view text, std::string_view stop) {
  for (std::size_t bytes = std::min(stop.size() - 1, text.size()); bytes > 0; --bytes) {
    if (text.ends_with(stop.substr(0, bytes))) return bytes;
  }
  return 0;
}

}  // namespace

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, std::string());
}

std::string StopText::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  std::size_t first = held_.npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != held_.npos) {
    stopped_ = true;
    return take(first);
  }
  std::size_t open = open_character(held_);
  for (const std::string& stop : stops_) open = std::max(open, open_stop(held_, stop));
  return take(held_.size() - open);
}

std::string StopText::finish() {
  return stopped_ ? std::string() : take(held_.size());
}

std::string StopText::take(std::size_t count) {
  std::string text = repaired_utf8(std::string_view(held_).substr(0, count));
  held_.erase(0, count);
  return text;
}

}  // namespace tessera
