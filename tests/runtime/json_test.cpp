#include "runtime/json.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

std::string nested(int levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace

TEST_CASE("JSON of ordinary files is parsed") {
  const nlohmann::json value = parse_json(R"({"a": [1, {"b": null}], "c": "d"})");
  REQUIRE(value.at("a").at(0) == 1);
  REQUIRE(value.at("c") == "d");
  REQUIRE(parse_json(R"([{"a": 1}, {"a": 2}])").size() == 2);  // keys of two objects
  REQUIRE(parse_json(R"({"a": {"a": 1}})").size() == 1);
}

TEST_CASE("JSON is refused beyond the nesting limit, however deep") {
  REQUIRE_NOTHROW(parse_json(nested(64)));
  REQUIRE_THROWS_WITH(parse_json(nested(65)), "it is nested more than 64 levels deep");
  REQUIRE_NOTHROW(parse_json(nested(3), 3));
  REQUIRE_THROWS_WITH(parse_json(nested(4), 3), "it is nested more than 3 levels deep");
  REQUIRE_THROWS_WITH(parse_json(nested(1'000'000)), Contains("64 levels"));
  REQUIRE_THROWS_WITH(parse_json(std::string(1'000'000, '[')), Contains("64 levels"));
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += R"({"a":)";
  REQUIRE_THROWS_WITH(parse_json(objects), Contains("64 levels"));
}

TEST_CASE("JSON with a key given twice is refused") {
  REQUIRE_THROWS_WITH(parse_json(R"({"a": 1, "a": 2})"), "it has the key \"a\" twice");
  REQUIRE_THROWS_WITH(parse_json(R"([{"x": {"a": 1, "b": 2, "a": 3}}])"), Contains("\"a\" twice"));
}

TEST_CASE("text that is not JSON is refused") {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xff\""}) {
    INFO(text);
    REQUIRE_THROWS_WITH(parse_json(text), Contains("it is not JSON"));
  }
  REQUIRE_THROWS_WITH(parse_json(std::string_view("{}\0{", 4)), Contains("zero byte"));
}

TEST_CASE("messages name the subject and the file") {
  REQUIRE_THROWS_WITH(parse_json("[[]]", 1, "the header"),
                      "the header is nested more than 1 levels deep");
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "bad.json") << "{";
  REQUIRE_THROWS_WITH(read_json_file(folder / "bad.json"),
                      Contains((folder / "bad.json").string() + ": it is not JSON"));
  REQUIRE_THROWS_WITH(read_json_file(folder / "missing.json"), Contains("missing.json"));
}

TEST_CASE("the message about text that is not JSON is short and printable") {
  CHECK_THROWS_WITH(parse_json("[\x7f"), Contains("last read: '[\\u007f'"));
  CHECK_THROWS_WITH(parse_json("[\"\xc2\x9b\n"), Contains("last read: '\"\\u009b"));
  CHECK_THROWS_WITH(parse_json("\"\xff"), Contains("\xef\xbf\xbd"));
  try {
    parse_json("[\"" + std::string(1'000'000, 'x') + "\n");
    FAIL("the text is not JSON");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).size() < 250);
  }
}

TEST_CASE("an excerpt is short, quoted and printable") {
  CHECK(excerpt("\x7f\xc2\x9b\xc2\xa0") == "\"\\u007f\\u009b\xc2\xa0\"");
  CHECK(excerpt("plain") == "\"plain\"");
  CHECK(excerpt("a\n\x1b]0;") == "\"a\\n\\u001b]0;\"");
  CHECK(excerpt("\xff") == "\"\xef\xbf\xbd\"");  // the replacement character
  CHECK(excerpt(std::string(60, 'x')) == "\"" + std::string(60, 'x') + "\"");
  CHECK(excerpt(std::string(1'000'000, 'x')) == "\"" + std::string(60, 'x') + "...\"");
  // The cut falls into the middle of a character of two bytes.
  CHECK(excerpt(std::string(59, 'x') + "\xc3\xa9") ==
        "\"" + std::string(59, 'x') + "\xef\xbf\xbd...\"");
}

}  // namespace tessera
