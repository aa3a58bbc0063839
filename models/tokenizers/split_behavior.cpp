#include "models/tokenizers/split_behavior.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "models/tokenizers/fields.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {

SplitBehavior split_behavior_from(const std::string& name) {
  constexpr std::array<std::string_view, 5> kNames = {"Removed", "Isolated", "MergedWithPrevious",
                                                      "MergedWithNext", "Contiguous"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  check(found != kNames.end(),
        "unknown behavior {}: choose Removed, Isolated, MergedWithPrevious, MergedWithNext or "
        "Contiguous",
        excerpt(name));
  return static_cast<SplitBehavior>(found - kNames.begin());
}

SplitPattern::SplitPattern(const nlohmann::json& description) {
  const Fields fields(description, "pattern");
  if (!fields.at("Regex").is_null()) {
    text_ = fields.text("Regex");
    regex_.emplace(text_);
  } else {
    text_ = fields.text("String");
    check(!text_.empty(), "a pattern is empty");
  }
}

std::vector<std::pair<std::size_t, std::size_t>> SplitPattern::matches(
    std::string_view text) const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  if (!regex_) {
    for (std::size_t at = 0; (at = text.find(text_, at)) != text.npos; at += text_.size()) {
      found.emplace_back(at, at + text_.size());
    }
    return found;
  }
  Regex::Search search(*regex_, text);
  for (std::size_t from = 0; from <= text.size();) {
    const auto match = search.next(from);
    if (!match) break;
    found.emplace_back(match->begin, match->end);
    from = match->end;
    if (match->begin != match->end) continue;
    if (from == text.size()) break;
    from += code_point_at(text, from).bytes;
  }
  return found;
}

std::vector<SplitPattern::Part> SplitPattern::whole(std::string_view text) const {
  std::vector<Part> parts;
  std::size_t done = 0;
  for (const auto& [begin, end] : matches(text)) {
    if (begin > done) parts.push_back({done, begin, false});
    parts.push_back({begin, end, true});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
  return parts;
}

std::vector<std::pair<std::size_t, std::size_t>> SplitPattern::parts(std::string_view text,
                                                                     SplitBehavior behavior,
                                                                     bool invert) const {
  std::vector<Part> all = whole(text);
  for (Part& part : all) part.is_match = part.is_match != invert;
  const bool backwards = behavior == SplitBehavior::merged_with_next;
  if (backwards) std::reverse(all.begin(), all.end());
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  bool after_match = false;
  for (const Part& part : all) {
    const bool joins = !pieces.empty() && (behavior == SplitBehavior::contiguous
                                               ? part.is_match == after_match
                                               : behavior >= SplitBehavior::merged_with_previous &&
                                                     part.is_match && !after_match);
    if (joins && backwards) {
      pieces.back().first = part.begin;
    } else if (joins) {
      pieces.back().second = part.end;
    } else if (behavior != SplitBehavior::removed || !part.is_match) {
      pieces.emplace_back(part.begin, part.end);
    }
    after_match = part.is_match;
  }
  if (backwards) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace tessera
