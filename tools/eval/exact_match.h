// Comparing a generated answer with the right one, by the rules of lm-eval's exact_match.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct MatchRules {
  /// A generated text ends before the first of these.
  std::vector<std::string> until = {};
  /// The answer is this expression's first match in the text: the match's first group that is not empty, or
  /// all of it if the expression has no group. Empty: the answer is the text.
  std::string extract = {};
  /// Matches of these are removed from both answers, one expression after the other.
  std::vector<std::string> ignore = {};
  bool ignore_case = false;
  /// ASCII's punctuation, and its digits.
  bool ignore_punctuation = false, ignore_numbers = false;
};

/// The text before the first of `until`.
std::string text_until(std::string text, const std::vector<std::string>& until);

/// The answer in a generated text (UTF-8), or "[invalid]" if `extract` does not match. Raises Error if it is
/// no regular expression.
std::string extracted_answer(const std::string& text, const MatchRules& rules);

/// Whether two answers (UTF-8) are equal but for the parts that the rules ignore.
bool exact_match(const std::string& answer, const std::string& right, const MatchRules& rules);

}  // namespace tessera
