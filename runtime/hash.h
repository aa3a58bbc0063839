// FNV-1a, a fast 64-bit hash (Fowler, Noll, Vo). It detects accidents, not attacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

class Fnv1a {
 public:
  constexpr void add_byte(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  constexpr void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<std::uint8_t>(c));
  }
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) add_byte(static_cast<std::uint8_t>(byte));
  }
  /// The number's eight bytes, the lowest first.
  constexpr void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      add_byte(static_cast<std::uint8_t>(number >> shift));
  }
  constexpr std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace tessera
