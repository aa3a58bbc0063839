#include "tools/eval/exact_match.h"

#include <algorithm>

#include "models/tokenizers/regex.h"
#include "models/tokenizers/utf8.h"

namespace tessera {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_punctuation(char c) {
  const char lower = static_cast<char>(c | 0x20);
  return c > ' ' && c < 0x7f && !is_digit(c) && (lower < 'a' || lower > 'z');
}

std::string normalized(std::string answer, const MatchRules& rules) {
  for (const std::string& pattern : rules.ignore) answer = replaced(answer, Regex(pattern), "");
  if (rules.ignore_case) answer = lower_case(answer);
  if (rules.ignore_punctuation) std::erase_if(answer, is_punctuation);
  if (rules.ignore_numbers) std::erase_if(answer, is_digit);
  return answer;
}

}  // namespace

std::string text_until(std::string text, const std::vector<std::string>& until) {
  for (const std::string& end : until) text = text.substr(0, text.find(end));
  return text;
}

std::string extracted_answer(const std::string& text, const MatchRules& rules) {
  if (rules.extract.empty()) return text;
  const Regex regex(rules.extract);
  Regex::Search search(regex, text);
  const auto match = search.next(0);
  if (!match) return "[invalid]";
  const std::vector<std::string_view> groups = search.groups();
  const auto group = std::ranges::find_if(groups, [](auto found) { return !found.empty(); });
  const std::string_view answer =
      groups.empty() ? std::string_view(text).substr(match->begin, match->end - match->begin)
                     : (group == groups.end() ? "[invalid]" : *group);
  return std::string(stripped(answer, /*left=*/true, /*right=*/true));
}

bool exact_match(const std::string& answer, const std::string& right, const MatchRules& rules) {
  return normalized(answer, rules) == normalized(right, rules);
}

}  // namespace tessera
