#include "models/tokenizers/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bit>

#include "runtime/check.h"

namespace tessera {
namespace {

struct Reading {
  CodePoint point;
  /// If not, point.bytes is the length of the maximal invalid part.
  bool valid;
};

/// The values that the second byte of a sequence may have: a shorter form must not exist,
/// surrogates and values above U+10FFFF neither.
bool may_follow(unsigned char first, unsigned char second) {
  if (first == 0xe0) return second >= 0xa0 && second <= 0xbf;
  if (first == 0xed) return second >= 0x80 && second <= 0x9f;
  if (first == 0xf0) return second >= 0x90 && second <= 0xbf;
  if (first == 0xf4) return second >= 0x80 && second <= 0x8f;
  return second >= 0x80 && second <= 0xbf;
}

Reading read_at(std::string_view text, std::size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {{first, 1}, true};
  // The leading ones of the first byte count the bytes: 110xxxxx, 1110xxxx, 11110xxx.
  const auto length = static_cast<std::size_t>(std::countl_one(first));
  if (first < 0xc2 || first > 0xf4) return {{0, 1}, false};
  char32_t value = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (position + i == text.size()) return {{0, i}, false};
    const auto next = static_cast<unsigned char>(text[position + i]);
    if (!may_follow(i == 1 ? first : 0x80, next)) return {{0, i}, false};
    value = (value << 6) | (next & 0x3fu);
  }
  return {{value, length}, true};
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t position) {
  const Reading reading = read_at(text, position);
  check(reading.valid, "not valid UTF-8 at byte {} (0x{:02x}); the bytes tokenizer takes any text",
        position, static_cast<unsigned char>(text[position]));
  return reading.point;
}

void append_utf8(std::string& text, char32_t code_point) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  text.append(bytes.begin(), bytes.begin() + count);
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Reading reading = read_at(text, i);
    if (!reading.valid) return false;
    i += reading.point.bytes;
  }
  return true;
}

std::string repaired_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Reading reading = read_at(text, i);
    repaired += reading.valid ? text.substr(i, reading.point.bytes) : "\uFFFD";
    i += reading.point.bytes;
  }
  return repaired;
}

bool is_white_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0d) || point == 0x20 || point == 0x85 || point == 0xa0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

std::string lower_case(std::string_view text) {
  std::string lower;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    append_utf8(
        lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
    i += point.bytes;
  }
  return lower;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  const CodePoint first = code_point_at(text, 0);
  std::string result;
  append_utf8(result,
              static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(first.value))));
  return result + lower_case(text.substr(first.bytes));
}

std::string_view stripped(std::string_view text, bool left, bool right, IsSpace is_space) {
  std::size_t first = text.size(), last = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = read_at(text, i).point;
    if (!is_space(point.value)) {
      first = std::min(first, i);
      last = i + point.bytes;
    }
    i += point.bytes;
  }
  const std::size_t begin = left ? first : 0;
  const std::size_t end = right ? last : text.size();
  return begin < end ? text.substr(begin, end - begin) : "";
}

}  // namespace tessera
