// Text that comes in pieces, up to the first of some stop texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Hands out text as soon as it can be no part of a stop text, and never a part of a character. Bytes
/// that are not UTF-8 become U+FFFD.
class StopText {
 public:
  /// Empty stop texts are ignored.
  explicit StopText(std::vector<std::string> stops);

  /// The text that this piece completes. Once a stop text has come, the text before it is handed out,
  /// and then no more.
  std::string push(std::string_view piece);
  /// The rest.
  std::string finish();
  /// Whether a stop text has come.
  bool stopped() const { return stopped_; }

 private:
  /// Hands out the first `count` bytes that are held back.
  std::string take(std::size_t count);

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
