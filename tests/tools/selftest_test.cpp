// tessera selftest: all is well on a healthy machine, and a fault is found and named.
#include "tools/selftest/selftest.h"

#include <catch2/catch.hpp>

#include "tests/support/paths.h"

namespace tessera {
namespace {

struct Report {
  int wrong = 0;
  std::vector<std::string> lines;
};

Report selftest_with(const std::vector<std::string>& fault) {
  Report report;
  const SelftestOptions options = {
      .ranks = 2, .device = "cpu", .program = TESSERA_BINARY_DIR "/bin/tessera", .fault = fault};
  report.wrong = selftest(options, [&](std::string_view line) { report.lines.emplace_back(line); });
  return report;
}

}  // namespace

TEST_CASE("selftest: every strategy and cut, a killed run and a resharded one have the same bits",
          "[cpu]") {
  const Report report = selftest_with({});
  CAPTURE(report.lines);
  CHECK(report.wrong == 0);
  REQUIRE(report.lines.size() == 13);
  for (const std::string& line : report.lines) CHECK(line.starts_with("ok     "));
  CHECK_THAT(report.lines[4], Catch::Contains("zero3      2 ranks: the same bits; ") &&
                                  Catch::Contains("as predicted"));
  for (const int cut : {8, 9, 10})
    CHECK_THAT(report.lines[cut], Catch::Contains("the same bits; "));
  CHECK_THAT(report.lines[10], Catch::Contains("pipeline   2 of 2 ranks, with fsdp"));
  CHECK_THAT(report.lines[11], Catch::Contains("killed") && Catch::Contains("of step 4"));
}

TEST_CASE("selftest: faults are found, and named", "[cpu]") {
  const Report bits = selftest_with({"optimizer.beta2=0.96"});
  CAPTURE(bits.lines);
  CHECK(bits.wrong == 12);
  CHECK_THAT(bits.lines[1], Catch::StartsWith("WRONG  ddp        2 ranks: the weights differ"));

  const Report forgets = selftest_with({"train.resume=never"});
  CAPTURE(forgets.lines);
  CHECK(forgets.wrong == 2);
  CHECK_THAT(forgets.lines[11], Catch::Contains("it began again in place of continuing"));
  CHECK_THAT(forgets.lines[12], Catch::Contains("it began again in place of continuing"));

  const Report refused = selftest_with({"optimizer.beta2=2"});
  CAPTURE(refused.lines);
  CHECK(refused.wrong == 12);
  CHECK_THAT(refused.lines[1], Catch::Contains("status 1: tessera: ") && Catch::Contains("beta2"));
}

TEST_CASE("selftest: numbers of ranks whose sums differ are refused") {
  CHECK_THROWS_WITH(selftest({.ranks = 3}, [](std::string_view) {}),
                    Catch::Contains("expected 2, 4, 8"));
}

}  // namespace tessera
