#include "autograd/checkpointing.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera {
namespace {

using Catch::Contains;

enum class Head { tied, own };

/// An embedding, `blocks` blocks and a head, which is the embedding's unit if tied.
Units make_units(int blocks, Head head = Head::tied) {
  Units units;
  const auto add = [&](const std::string& name, bool at_both_ends) {
    units.push_back(std::make_unique<Unit>(name, std::vector<Parameter>(), at_both_ends));
  };
  add("embedding", head == Head::tied);
  for (int i = 0; i < blocks; ++i) add("h." + std::to_string(i), false);
  if (head == Head::own) add("head", false);
  return units;
}

/// One letter per unit: r(ecomputed) or k(ept).
std::string pattern(const std::string& text, int blocks, Head head = Head::tied) {
  const Units units = make_units(blocks, head);
  for (const auto& unit : units) unit->set_checkpointing(true);
  set_checkpointing(units, parse_checkpointing(text).value());
  std::string letters;
  for (const auto& unit : units) letters += unit->checkpointing() ? 'r' : 'k';
  return letters;
}

}  // namespace

TEST_CASE("none, full, every K and from I name the blocks that are recomputed") {
  CHECK(pattern("none", 5) == "kkkkkk");
  CHECK(pattern("full", 5) == "krrrrr");
  CHECK(pattern("every 1", 5) == "krrrrr");
  CHECK(pattern("every 2", 5) == "krkrkr");
  CHECK(pattern("every 3", 5) == "krkkrk");
  CHECK(pattern("every 9", 5) == "krkkkk");
  CHECK(pattern("from 0", 5) == "krrrrr");
  CHECK(pattern("from 2", 5) == "kkkrrr");
  CHECK(pattern("from 4", 5) == "kkkkkr");
  CHECK(pattern("full", 0) == "k");
}

TEST_CASE("a text of another form is not a checkpointing policy") {
  for (const std::string text : {"", "some", "None", "every", "every ", "every 0", "every -1",
                                 "every 2 ", "every  2", "every 2x", "every2", "every 1.5", "from",
                                 "from -1", "from x", "full 2", "every 99999999999999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_checkpointing(text).has_value());
  }
}

TEST_CASE("a checkpointing policy is written as the text that it was read from") {
  for (const std::string text : {"none", "full", "every 2", "every 9", "from 1", "from 6"}) {
    CHECK(to_string(parse_checkpointing(text).value()) == text);
  }
}

TEST_CASE("a head of its own is not a block and is never recomputed") {
  CHECK(pattern("none", 3, Head::own) == "kkkkk");
  CHECK(pattern("full", 3, Head::own) == "krrrk");
  CHECK(pattern("every 3", 4, Head::own) == "krkkrk");
  CHECK(pattern("from 2", 3, Head::own) == "kkkrk");
}

TEST_CASE("recomputing from a block that does not exist is refused") {
  CHECK_THROWS_WITH(pattern("from 5", 5), Contains("'from 5'") && Contains("0 to 4"));
  CHECK_THROWS_WITH(pattern("from 5", 5, Head::own), Contains("'from 5'") && Contains("0 to 4"));
}

}  // namespace tessera
