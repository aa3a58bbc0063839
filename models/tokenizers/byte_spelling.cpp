#include "models/tokenizers/byte_spelling.h"

#include <array>

#include "models/tokenizers/utf8.h"

namespace tessera {
namespace {

bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/// The code point of every byte.
const std::array<char32_t, 256>& code_points() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> made{};
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      made[static_cast<std::size_t>(byte)] =
          is_printable(byte) ? static_cast<char32_t>(byte) : next++;
    }
    return made;
  }();
  return table;
}

/// The byte of every code point below the table's size; -1: it stands for no byte.
const std::array<int, 0x144>& bytes_by_code_point() {
  static const std::array<int, 0x144> table = [] {
    std::array<int, 0x144> made{};
    made.fill(-1);
    for (int byte = 0; byte < 256; ++byte)
      made[code_points()[static_cast<std::size_t>(byte)]] = byte;
    return made;
  }();
  return table;
}

}  // namespace

std::string spelling_of_byte(unsigned char byte) {
  std::string spelling;
  append_utf8(spelling, code_points()[byte]);
  return spelling;
}

std::optional<std::string> bytes_of_spelling(std::string_view token) {
  const auto& bytes = bytes_by_code_point();
  std::string spelled;
  for (std::size_t i = 0; i < token.size();) {
    const CodePoint point = code_point_at(token, i);
    if (point.value >= bytes.size() || bytes[point.value] < 0) return std::nullopt;
    spelled.push_back(static_cast<char>(bytes[point.value]));
    i += point.bytes;
  }
  return spelled;
}

}  // namespace tessera
