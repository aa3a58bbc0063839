// The pattern of tokenizer.json's Split and Replace, and the five behaviours of Split.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/tokenizers/regex.h"

namespace tessera {

/// Where a match goes.
enum class SplitBehavior {
  removed,               // nowhere
  isolated,              // it is a piece
  merged_with_previous,  // to the end of the piece before
  merged_with_next,      // to the beginning of the piece after
  contiguous,            // neighbouring matches are one piece
};

/// Raises Error for a name that is not one of Removed, Isolated, MergedWithPrevious, MergedWithNext
/// and Contiguous.
SplitBehavior split_behavior_from(const std::string& name);

/// {"Regex": ...} or {"String": ...}.
class SplitPattern {
 public:
  /// Raises Error if it is neither, or the expression is not valid.
  explicit SplitPattern(const nlohmann::json& description);

  bool is_regex() const { return regex_.has_value(); }
  const std::string& text() const { return text_; }

  /// The ranges of bytes that match, in order and apart.
  std::vector<std::pair<std::size_t, std::size_t>> matches(std::string_view text) const;
  /// The pieces of a text as ranges of bytes, some of them empty. `invert` takes the text between
  /// matches for the matches. As NormalizedString::split of Hugging Face's tokenizers.
  std::vector<std::pair<std::size_t, std::size_t>> parts(std::string_view text,
                                                         SplitBehavior behavior, bool invert) const;

 private:
  struct Part {
    std::size_t begin, end;
    bool is_match;
  };
  /// All of the text.
  std::vector<Part> whole(std::string_view text) const;

  std::string text_;
  std::optional<Regex> regex_;
};

}  // namespace tessera
