#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/tokenizers/regex.h"

#include <pcre2.h>

#include <array>

#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

constexpr std::size_t kLongestPattern = 10'000;

/// The expression in PCRE2's dialect.
std::string translated(const std::string& pattern) {
  std::string made;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      made += pattern[i];
      continue;
    }
    const char escape = pattern[++i];
    // PCRE2 counts U+180E as a space, which Unicode does not.
    if (escape == 's') {
      made += "\\p{White_Space}";
    } else if (escape == 'S') {
      made += "\\P{White_Space}";
    } else {
      check(std::string_view("wWbBhHRXCGKQEyYOkg").find(escape) == std::string_view::npos,
            "the expression {} has the escape \\{}, which is not supported", excerpt(pattern),
            escape);
      made += {'\\', escape};
    }
  }
  return made;
}

bool may_look_behind(const std::string& pattern) {
  for (const char* part : {"(?<", "\\A", "\\Z", "\\z", "$"}) {
    if (pattern.find(part) != pattern.npos) return true;
  }
  // A ^ that does not negate a class is an anchor.
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '^' && (i == 0 || pattern[i - 1] != '[')) return true;
  }
  return false;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

Regex::Regex(const std::string& pattern)
    : pattern_(pattern), looks_behind_(may_look_behind(pattern)) {
  check(pattern.size() <= kLongestPattern, "an expression has {} bytes; expected at most {}",
        pattern.size(), kLongestPattern);
  const std::string text = translated(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  check(code != nullptr, "the expression {} is not valid: {}", excerpt(pattern), message_of(error));
  code_ = {code, [](void* compiled) { pcre2_code_free(static_cast<pcre2_code*>(compiled)); }};
  // Without machine code (a system may forbid it) the interpreter matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

Regex::Search::Search(const Regex& regex, std::string_view text)
    : regex_(regex),
      text_(text),
      data_(pcre2_match_data_create_from_pattern(static_cast<pcre2_code*>(regex.code_.get()),
                                                 nullptr)) {}

Regex::Search::~Search() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
}

std::optional<Regex::Match> Regex::Search::next(std::size_t from) {
  const auto* code = static_cast<const pcre2_code*>(regex_.code_.get());
  auto* data = static_cast<pcre2_match_data*>(data_);
  const auto search = [&](std::uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from,
                       PCRE2_NO_UTF_CHECK | options, data, nullptr);
  };
  int status = search(0);
  // The machine code has a small stack; the interpreter uses the heap.
  if (status == PCRE2_ERROR_JIT_STACKLIMIT) status = search(PCRE2_NO_JIT);
  if (status == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (status < 0) {
    fail("the expression {} fails on the text at byte {}: {}", excerpt(regex_.pattern_), from,
         message_of(status));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  if (ends[0] < from || ends[1] < ends[0]) {
    fail("the expression {} matches backwards", excerpt(regex_.pattern_));
  }
  return Match{ends[0], ends[1]};
}

std::vector<std::string_view> Regex::Search::groups() const {
  auto* data = static_cast<pcre2_match_data*>(data_);
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  std::vector<std::string_view> texts;
  for (std::uint32_t group = 1; group < pcre2_get_ovector_count(data); ++group) {
    const PCRE2_SIZE begin = ends[2 * group], end = ends[2 * group + 1];
    texts.push_back(begin == PCRE2_UNSET ? "" : text_.substr(begin, end - begin));
  }
  return texts;
}

std::string replaced(std::string_view text, const Regex& regex, std::string_view replacement) {
  Regex::Search search(regex, text);
  std::string result;
  std::size_t copied = 0;
  for (std::size_t from = 0; from <= text.size();) {
    const auto match = search.next(from);
    if (!match) break;
    result += text.substr(copied, match->begin - copied);
    result += replacement;
    copied = from = match->end;
    if (match->begin == match->end) {
      from += from < text.size() ? code_point_at(text, from).bytes : 1;
    }
  }
  return result += text.substr(copied);
}

}  // namespace tessera
