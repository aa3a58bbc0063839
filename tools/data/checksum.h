// A fast checksum against accidents: FNV-1a, 64 bits (Fowler, Noll, Vo).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

inline std::uint64_t fnv1a(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace tessera
