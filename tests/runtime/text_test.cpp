#include "runtime/text.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

using Parts = std::vector<std::string_view>;

}  // namespace

TEST_CASE("trimmed removes spaces and tabs at both ends only") {
  CHECK(trimmed("") == "");
  CHECK(trimmed(" \t ") == "");
  CHECK(trimmed("a") == "a");
  CHECK(trimmed("  a b\t") == "a b");
  CHECK(trimmed("\na\n") == "\na\n");
}

TEST_CASE("split gives the trimmed parts between separators") {
  CHECK(split("a,b", ',') == Parts{"a", "b"});
  CHECK(split(" a , b c ,d", ',') == Parts{"a", "b c", "d"});
  CHECK(split("one", ',') == Parts{"one"});
  CHECK(split("a,,b", ',') == Parts{"a", "", "b"});
  CHECK(split(",a", ',') == Parts{"", "a"});
}

TEST_CASE("split gives no part for an empty text or after a last separator") {
  CHECK(split("", ',').empty());
  CHECK(split("a,", ',') == Parts{"a"});
  CHECK(split(",", ',') == Parts{""});
}

}  // namespace tessera
