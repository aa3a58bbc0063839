// The checksum against published values, its two implementations, and single changed bits.
#include "runtime/crc32c.h"

#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "runtime/random.h"

namespace tessera {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  const RandomStream random(1, "bytes");
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(random.bits(i));
  return bytes;
}

}  // namespace

TEST_CASE("crc32c has the values of RFC 3720, appendix B.4") {
  const auto of = [](std::vector<std::uint8_t> bytes) {
    return crc32c(std::as_bytes(std::span(bytes)));
  };
  CHECK(of(std::vector<std::uint8_t>(32, 0x00)) == 0x8a9136aau);
  CHECK(of(std::vector<std::uint8_t>(32, 0xff)) == 0x62a8ab43u);
  std::vector<std::uint8_t> rising, falling;
  for (std::uint8_t i = 0; i < 32; ++i) rising.push_back(i);
  for (std::uint8_t i = 32; i > 0; --i) falling.push_back(i - 1);
  CHECK(of(rising) == 0x46dd794eu);
  CHECK(of(falling) == 0x113fdb5cu);
  CHECK(of({'1', '2', '3', '4', '5', '6', '7', '8', '9'}) == 0xe3069283u);
  CHECK(of({}) == 0u);
}

TEST_CASE("crc32c by table and by instruction agree, however the bytes are cut") {
  const std::vector<std::byte> bytes = random_bytes(1000);
  for (std::size_t count = 0; count < 40; ++count) {
    const auto part = std::span(bytes).subspan(count, 3 * count + 1);
    CHECK(crc32c(part) == crc32c_by_table(part));
    Crc32c pieces;
    pieces.add(part.first(count));
    pieces.add(part.subspan(count));
    CHECK(pieces.value() == crc32c(part));
  }
}

TEST_CASE("crc32c changes with every single bit") {
  std::vector<std::byte> bytes = random_bytes(64);
  const std::uint32_t original = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const std::byte mask{static_cast<std::uint8_t>(1u << (bit % 8))};
    bytes[bit / 8] ^= mask;
    CHECK(crc32c(bytes) != original);
    bytes[bit / 8] ^= mask;
  }
}

}  // namespace tessera
