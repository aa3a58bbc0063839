// CRC-32C, a checksum that finds every changed byte of a block.
//
// The polynomial is Castagnoli's (1993), as in iSCSI (RFC 3720, appendix B.4), ext4 and SSE 4.2's crc32
// instruction. It finds every change within 32 neighbouring bits, and any other change but one in
// 2^32. It guards against accidents, not attacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

class Crc32c {
 public:
  void add(std::span<const std::byte> bytes);
  std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = 0xffffffffu;
};

inline std::uint32_t crc32c(std::span<const std::byte> bytes) {
  Crc32c crc;
  crc.add(bytes);
  return crc.value();
}

/// The same by a table alone, as on CPUs without the instruction; for tests.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes);

}  // namespace tessera
