#include "runtime/enum_names.h"

#include <catch2/catch.hpp>
#include <memory>

#include "runtime/error.h"

namespace tessera {
namespace {

enum class Color : unsigned char { red, green, blue };
enum class Answer { yes };

}  // namespace

template <>
inline constexpr EnumNames<Color> kEnumNames<Color> = {"color", {"red", "green", "blue"}};
template <>
inline constexpr EnumNames<Answer> kEnumNames<Answer> = {"answer", {"yes"}};

TEST_CASE("names and enumerators lead to each other, at compile time too") {
  static_assert(enum_name(Color::green) == "green");
  static_assert(enum_from_name<Color>("blue") == Color::blue);
  static_assert(enum_names<Color>().size() == 3);
  for (const Color color : {Color::red, Color::green, Color::blue}) {
    REQUIRE(enum_from_name<Color>(enum_name(color)) == color);
  }
}

TEST_CASE("an unknown name is refused with the choices") {
  REQUIRE_THROWS_WITH(enum_from_name<Color>("gren"),
                      "unknown color 'gren': choose red, green or blue");
  REQUIRE_THROWS_WITH(enum_from_name<Color>(""), "unknown color '': choose red, green or blue");
  REQUIRE_THROWS_WITH(enum_from_name<Answer>("no"), "unknown answer 'no': choose yes");
  REQUIRE(enum_choices<Color>() == "red, green or blue");
}

TEST_CASE("an unknown name from a hostile file stays one short line of text") {
  REQUIRE_THROWS_WITH(enum_from_name<Answer>("a\nb\x1b"),
                      "unknown answer 'a\\nb\\u001b': choose yes");
  REQUIRE_THROWS_WITH(enum_from_name<Answer>(std::string(1000, 'x')),
                      "unknown answer '" + std::string(60, 'x') + "...': choose yes");
}

TEST_CASE("a value without a name is an error") {
  REQUIRE_THROWS_WITH(enum_name(static_cast<Color>(3)), "color has no value 3");
  REQUIRE_THROWS_AS(enum_name(static_cast<Answer>(-1)), Error);
}

TEST_CASE("a copy of a table keeps its names") {
  auto original = std::make_unique<EnumNames<Color>>(kEnumNames<Color>);
  const EnumNames<Color> copy = *original;
  original.reset();
  REQUIRE(copy.name_of(Color::blue) == "blue");
  REQUIRE(copy.kind() == "color");
}

}  // namespace tessera
