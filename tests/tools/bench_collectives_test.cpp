// bench_collectives from the command line, on small sizes.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/file.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

const std::string kProgram = std::string(TESSERA_BINARY_DIR) + "/bin/bench_collectives";

}  // namespace

TEST_CASE("bench_collectives reports touched and sent bytes as its model says") {
  const test::TemporaryDirectory folder;
  const std::string json = folder / "report.json";
  const std::string command =
      kProgram + " --device cpu --ranks 4 --kib 64 --pairs 1 --json " + json + " > /dev/null";
  REQUIRE(std::system(command.c_str()) == 0);
  const auto report = nlohmann::json::parse(read_text_file(json));
  CHECK(report.at("ranks") == 4);
  // The tensor has four parts of 16 KiB.
  constexpr int kPart = 16 << 10;
  struct Parts {
    int touched;
    int sent;    // by rank 0
    double bus;  // busbw over algbw, from nccl-tests' PERFORMANCE.md
  };
  const std::map<std::string, Parts> expected = {
      {"all_gather", {3 + 3, 3, 0.75}},    {"reduce_scatter", {4 + 1, 3, 0.75}},
      {"all_reduce", {5 + 6, 3 + 3, 1.5}}, {"broadcast", {8, 12, 1.0}},
      {"reduce", {5 + 6, 3, 1.0}},         {"all_to_all", {8, 3, 0.75}}};
  REQUIRE(report.at("collectives").size() == expected.size());
  for (const auto& row : report.at("collectives")) {
    const std::string name = row.at("collective");
    INFO(name);
    CHECK(row.at("touched_bytes") == expected.at(name).touched * kPart);
    CHECK(row.at("sent_bytes") == expected.at(name).sent * kPart);
    CHECK(row.at("touched_bytes_per_second") > 0.0);
    const double rate = row.at("algbw_bytes_per_second").get<double>();
    CHECK(rate * row.at("time_us").get<double>() * 1e-6 == Approx(4 * kPart));
    CHECK(row.at("busbw_bytes_per_second").get<double>() / rate == Approx(expected.at(name).bus));
    CHECK(row.at("ratio") > 0.0);
  }
}

TEST_CASE("bench_collectives refuses 0 ranks with status 2") {
  CHECK(WEXITSTATUS(std::system((kProgram + " --ranks 0 > /dev/null 2>&1").c_str())) == 2);
}

}  // namespace tessera
