#include "models/tokenizers/utf8.h"

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
  const auto byte = [&](char32_t value) { text.push_back(static_cast<char>(value)); };
  const auto rest = [&](int shift) { byte(0x80 | ((code_point >> shift) & 0x3f)); };
  if (code_point < 0x80) return byte(code_point);
  if (code_point < 0x800) {
    byte(0xc0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      byte(0xe0 | (code_point >> 12));
    } else {
      byte(0xf0 | (code_point >> 18));
      rest(12);
    }
    rest(6);
  }
  rest(0);
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

}  // namespace tessera
