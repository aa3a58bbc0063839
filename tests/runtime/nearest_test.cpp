#include "runtime/nearest.h"

#include <catch2/catch.hpp>
#include <vector>

namespace tessera {

TEST_CASE("edit distance counts insertions, deletions and replacements") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);  // the textbook example
  CHECK(edit_distance("sunday", "saturday") == 3);
  CHECK(edit_distance("same", "same") == 0);
}

TEST_CASE("the nearest name is found if it is near enough") {
  const std::vector<std::string> names = {"data.batch_size", "optimizer.learning_rate",
                                          "optimizer.beta1", "optimizer.beta2"};
  CHECK(nearest_name("optimizer.learnig_rate", names) == "optimizer.learning_rate");
  CHECK(nearest_name("optimizer.beta3", names) == "optimizer.beta1");
  CHECK(nearest_name("data.bach_sise", names) == "data.batch_size");
  CHECK_FALSE(nearest_name("data.colour", names).has_value());
  CHECK_FALSE(nearest_name("anything", {}).has_value());
}

TEST_CASE("a name in the wrong section finds its section") {
  const std::vector<std::string> names = {"data.batch_size", "optimizer.learning_rate"};
  CHECK(nearest_name("train.learning_rate", names) == "optimizer.learning_rate");
  CHECK(nearest_name("batch_size", names) == "data.batch_size");
}

}  // namespace tessera
