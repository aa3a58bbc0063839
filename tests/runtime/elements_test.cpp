#include "runtime/elements.h"

#include <catch2/catch.hpp>
#include <vector>

namespace tessera {
namespace {

using Numbers = std::vector<std::int64_t>;

/// The tensor's elements that the part's first `count` are. Runs follow one another in the part.
Numbers elements_of(const Elements& part, std::int64_t count) {
  Numbers result;
  part.for_each_run(count, [&](std::int64_t element, std::int64_t offset, std::int64_t n) {
    CHECK(offset == static_cast<std::int64_t>(result.size()));
    CHECK(n > 0);
    for (std::int64_t i = 0; i < n; ++i) result.push_back(element + i);
  });
  return result;
}

}  // namespace

TEST_CASE("elements: the middle columns of a matrix, and the part from one of its elements on") {
  const Elements columns = {.first = 2, .run = 2, .stride = 6};
  CHECK(elements_of(columns, 6) == Numbers{2, 3, 8, 9, 14, 15});
  CHECK(elements_of(columns.from(3), 3) == Numbers{9, 14, 15});
  CHECK(elements_of(columns.from(1).from(3), 2) == Numbers{14, 15});
  CHECK(elements_of(columns, 0).empty());
}

TEST_CASE("elements: by default a part is a slice, in one run") {
  int runs = 0;
  Elements{.first = 5}.from(2).for_each_run(
      1000, [&](std::int64_t element, std::int64_t offset, std::int64_t n) {
        ++runs;
        CHECK(element == 7);
        CHECK(offset == 0);
        CHECK(n == 1000);
      });
  CHECK(runs == 1);
}

TEST_CASE("elements: the i-th of a part is in run i / run, after any number of elements left out") {
  for (const std::int64_t run : {1, 3, 8}) {
    for (const std::int64_t gap : {0, 1, 5}) {
      const Elements part = {.first = 4, .run = run, .stride = run + gap};
      for (std::int64_t skip = 0; skip < 20; ++skip) {
        for (std::int64_t count = 0; count < 20; ++count) {
          Numbers expected;
          for (std::int64_t i = skip; i < skip + count; ++i) {
            expected.push_back(4 + i / run * (run + gap) + i % run);
          }
          REQUIRE(elements_of(part.from(skip), count) == expected);
        }
      }
    }
  }
}

}  // namespace tessera
