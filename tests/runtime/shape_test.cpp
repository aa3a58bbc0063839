#include "runtime/shape.h"

#include <catch2/catch.hpp>
#include <vector>

namespace tessera {

using Catch::Contains;

TEST_CASE("a shape knows its rank, extents and number of elements") {
  const Shape shape = {2, 3, 5};
  REQUIRE(shape.rank() == 3);
  REQUIRE(shape.numel() == 30);
  REQUIRE(shape[0] == 2);
  REQUIRE(shape[-1] == 5);
  REQUIRE(shape[-3] == 2);
  REQUIRE(std::vector<std::int64_t>(shape.begin(), shape.end()) ==
          std::vector<std::int64_t>{2, 3, 5});
  REQUIRE(to_string(shape) == "[2, 3, 5]");
}

TEST_CASE("rank 0 is a scalar of one element, and a zero extent leaves none") {
  REQUIRE(Shape{}.numel() == 1);
  REQUIRE(to_string(Shape{}) == "[]");
  REQUIRE(Shape{0}.numel() == 0);
  REQUIRE(Shape{3, 0, 7}.numel() == 0);
}

TEST_CASE("shapes are equal if ranks and extents are") {
  REQUIRE(Shape{2, 3} == Shape{2, 3});
  REQUIRE_FALSE(Shape{2, 3} == Shape{3, 2});
  REQUIRE_FALSE(Shape{} == Shape{0});
  REQUIRE_FALSE(Shape{2} == Shape{2, 0});
}

TEST_CASE("with() replaces one extent and leaves the original") {
  const Shape shape = {2, 3};
  REQUIRE(shape.with(0, 7) == Shape{7, 3});
  REQUIRE(shape.with(-1, 0) == Shape{2, 0});
  REQUIRE(shape == Shape{2, 3});
  REQUIRE_THROWS_WITH(shape.with(2, 1), Contains("no dimension 2"));
  REQUIRE_THROWS_WITH(shape.with(-3, 1), Contains("no dimension -3"));
  REQUIRE_THROWS_WITH(shape.with(0, -1), Contains("negative"));
  REQUIRE_THROWS_WITH(shape.with(0, INT64_MAX), Contains("64 bits"));
}

TEST_CASE("invalid shapes are refused") {
  REQUIRE_THROWS_WITH((Shape{2, -1}), Contains("[2, -1]"));
  REQUIRE_THROWS_WITH((Shape{1, 1, 1, 1, 1, 1, 1}), Contains("at most 6"));
  REQUIRE_NOTHROW((Shape{1, 1, 1, 1, 1, 1}));
  REQUIRE_NOTHROW(Shape{INT64_MAX});
  REQUIRE_THROWS_WITH((Shape{INT64_MAX, 2}), Contains("64 bits"));
  REQUIRE_THROWS_WITH((Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}), Contains("64 bits"));
}

}  // namespace tessera
