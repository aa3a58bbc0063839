#include "models/tokenizers/utf8.h"

#include <array>
#include <bit>

#include "runtime/check.h"

namespace tessera {
namespace {

[[noreturn]] void fail_at(std::string_view text, std::size_t position) {
  fail("not valid UTF-8 at byte {} (0x{:02x}); the bytes tokenizer takes any text", position,
       static_cast<unsigned char>(text[position]));
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {first, 1};
  // The leading ones of the first byte count the bytes: 110xxxxx, 1110xxxx, 11110xxx.
  const auto length = static_cast<std::size_t>(std::countl_one(first));
  if (length < 2 || length > 4 || length > text.size() - position) fail_at(text, position);
  char32_t value = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[position + i]);
    if ((next & 0xc0) != 0x80) fail_at(text, position);
    value = (value << 6) | (next & 0x3fu);
  }
  // A shorter form must not exist.
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kLeast[length] || value > 0x10ffff || surrogate) fail_at(text, position);
  return {value, length};
}

}  // namespace tessera
