#include "runtime/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tessera {
namespace {

/// The polynomial with its bits reversed.
constexpr std::uint32_t kPolynomial = 0x82f63b78u;

/// The effect of one byte.
constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? kPolynomial : 0);
    table[byte] = state;
  }
  return table;
}();

std::uint32_t add_by_table(std::uint32_t state, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    state = (state >> 8) ^ kTable[(state ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  }
  return state;
}

#if defined(__x86_64__)
/// Eight bytes at a time.
[[gnu::target("sse4.2")]] std::uint32_t add_by_instruction(std::uint32_t state,
                                                           std::span<const std::byte> bytes) {
  std::uint64_t wide = state;
  while (bytes.size() >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    wide = _mm_crc32_u64(wide, word);
    bytes = bytes.subspan(sizeof word);
  }
  return add_by_table(static_cast<std::uint32_t>(wide), bytes);
}
#endif

}  // namespace

void Crc32c::add(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    state_ = add_by_instruction(state_, bytes);
    return;
  }
#endif
  state_ = add_by_table(state_, bytes);
}

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes) {
  return ~add_by_table(0xffffffffu, bytes);
}

}  // namespace tessera
