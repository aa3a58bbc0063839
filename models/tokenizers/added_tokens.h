// Added tokens: texts that are tokens of their own before anything else is looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct AddedToken {
  std::int32_t id = 0;
  std::string text;
  /// Only between characters that belong to no word.
  bool single_word = false;
  /// Takes the spaces before it, after it.
  bool takes_left = false, takes_right = false;
  /// Looked for in the normalized text; else in the text as it is.
  bool normalized = false;
  bool special = false;
};

/// Finds added tokens in a text: from left to right, the longest at each place.
class AddedTokenFinder {
 public:
  /// No token's text is empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// Called with a token, or null for text between tokens, from left to right.
  using Sink = std::function<void(const AddedToken* token, std::string_view text)>;
  /// The text must be valid UTF-8. Text between tokens is not empty.
  void cut(std::string_view text, const Sink& sink) const;

 private:
  struct Node {
    std::map<unsigned char, std::size_t> next;
    std::optional<std::size_t> token;
  };

  /// The longest token that begins at `position`, or null.
  const AddedToken* longest_at(std::string_view text, std::size_t position) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;       // a trie of their bytes; the root is the first
  std::vector<bool> first_byte_;  // whether a token begins with this byte
};

}  // namespace tessera
