// Regular expressions over UTF-8, by PCRE2.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A compiled expression. Several threads may search with it at once.
///
/// tokenizer.json has expressions of Oniguruma. Those of published tokenizers mean the same here:
/// \s is Unicode's White_Space. Escapes with another meaning in PCRE2 are refused.
class Regex {
 public:
  struct Match {
    std::size_t begin, end;  // bytes
  };

  /// Raises Error with the expression and PCRE2's reason if it is not valid.
  explicit Regex(const std::string& pattern);

  const std::string& pattern() const { return pattern_; }
  /// Whether a match depends on text before the position where the search begins.
  bool looks_behind() const { return looks_behind_; }

  /// A search through one text. It refers to the expression and the text.
  class Search {
   public:
    /// The text must be valid UTF-8.
    Search(const Regex& regex, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    /// The first match that begins at or after byte `from`, a character's first. Raises Error if
    /// the expression backtracks beyond PCRE2's limits.
    std::optional<Match> next(std::size_t from);
    /// The text of every group in the match that next() found; empty for a group that is not in it.
    std::vector<std::string_view> groups() const;

   private:
    const Regex& regex_;
    std::string_view text_;
    void* data_;  // pcre2_match_data
  };

 private:
  std::string pattern_;
  std::shared_ptr<void> code_;  // pcre2_code
  bool looks_behind_ = false;
};

/// The text (valid UTF-8) with `replacement` in place of every match.
std::string replaced(std::string_view text, const Regex& regex, std::string_view replacement);

}  // namespace tessera
