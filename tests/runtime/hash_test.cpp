#include "runtime/hash.h"

#include <array>
#include <catch2/catch.hpp>

namespace tessera {
namespace {

std::uint64_t hash_of(std::string_view text) {
  Fnv1a hash;
  hash.add(text);
  return hash.value();
}

}  // namespace

// draft-eastlake-fnv (IETF), "FNV-1a 64 bit" test vectors.
TEST_CASE("FNV-1a gives the published values") {
  REQUIRE(hash_of("") == 0xcbf29ce484222325u);
  REQUIRE(hash_of("a") == 0xaf63dc4c8601ec8cu);
  REQUIRE(hash_of("foobar") == 0x85944171f73967e8u);
}

TEST_CASE("a hash of parts is the hash of the whole") {
  Fnv1a parts;
  parts.add(std::string_view("foo"));
  parts.add(std::string_view("bar"));
  REQUIRE(parts.value() == hash_of("foobar"));

  constexpr std::array<std::byte, 3> kBytes = {std::byte{'b'}, std::byte{'a'}, std::byte{'r'}};
  Fnv1a bytes;
  bytes.add(std::string_view("foo"));
  bytes.add(std::span<const std::byte>(kBytes));
  REQUIRE(bytes.value() == hash_of("foobar"));
}

TEST_CASE("a number is hashed as eight bytes, the lowest first") {
  Fnv1a number;
  number.add(std::uint64_t{0x0000'7261'626f'6f66});  // "foobar" and two zero bytes
  REQUIRE(number.value() == hash_of(std::string_view("foobar\0\0", 8)));
}

}  // namespace tessera
