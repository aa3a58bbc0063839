// Rates measured by the benchmarks, and predictions from them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/file.h"
#include "tests/tools/shell.h"
#include "tools/plan/machine_file.h"

namespace tessera {
namespace {

/// Runs a benchmark that fits a link to transfers. No link fits if other processes delay the small ones
/// alone: then the benchmark says so.
bool fits_a_link(const std::string& command, const test::TemporaryDirectory& folder) {
  const test::ShellOutcome outcome = test::shell(command, folder);
  if (outcome.status != 0) {
    CHECK_THAT(outcome.err, Catch::Contains("larger transfers took no longer"));
  }
  return outcome.status == 0;
}

}  // namespace

TEST_CASE("bench_step and bench_collectives fit the rates that a plan reads", "[cpu]") {
  const test::TemporaryDirectory folder;
  const std::string file = folder / "here.json";
  REQUIRE(test::shell("bench_step --device cpu --model tiny --threads 1 --steps 1 --fit " + file,
                      folder)
              .status == 0);
  CHECK(load_machine(file).links.empty());
  if (!fits_a_link("bench_collectives --device cpu --ranks 2 --kib 4 --pairs 1 --fit " + file,
                   folder)) {
    return;
  }
  const MachineRates machine = load_machine(file);
  CHECK(machine.cores > 0);
  const ComputeRates& rates = machine.compute_of(1, DType::f32);
  CHECK((rates.forward > 0.0 && rates.backward > 0.0 && rates.memory > 0.0));
  CHECK(machine.links.at(0).ranks == 2);
  CHECK(machine.links.at(0).bandwidth > 0.0);
}

TEST_CASE("bench_step fits a rate for products in 8 bits next to that of bf16", "[cpu]") {
  const test::TemporaryDirectory folder;
  const std::string file = folder / "here.json";
  const test::ShellOutcome outcome = test::shell(
      "bench_step --device cpu --model tiny --threads 1 --steps 1 runtime.compute_dtype=fp8 "
      "--fit " +
          file,
      folder);
  if (outcome.status != 0) {  // a pause may have hit the run in bf16
    CHECK_THAT(outcome.err, Catch::Contains("too little of a step's time is products in 8 bits"));
    return;
  }
  const MachineRates machine = load_machine(file);
  REQUIRE(machine.compute_in_8_bits(1, DType::bf16).dtype == DType::e4m3);
  CHECK(machine.compute_in_8_bits(1, DType::bf16).forward !=
        machine.compute_of(1, DType::bf16).forward);
}

TEST_CASE("bench_prediction sets predicted next to measured steps", "[cpu]") {
  const test::TemporaryDirectory folder;
  const std::string file = folder / "report.json";
  if (!fits_a_link("bench_prediction --ranks 1,2 --strategies ddp,fsdp --steps 2 --json " + file,
                   folder)) {
    return;
  }
  const auto report = nlohmann::json::parse(read_text_file(file));
  REQUIRE(report["steps"].size() == 4);
  std::vector<double> errors;
  for (const auto& row : report["steps"]) {
    CHECK(row["predicted_ms"] > 0.0);
    CHECK(row["measured_ms"] > 0.0);
    CHECK(row["predicted_exposed_ms"] < row["predicted_ms"]);
    const double ratio = row["predicted_ms"].get<double>() / row["measured_ms"].get<double>();
    errors.push_back(std::abs(ratio - 1.0));
  }
  std::sort(errors.begin(), errors.end());
  const double error = report["median_error"];
  CHECK((errors.front() <= error && error <= errors.back()));
}

}  // namespace tessera
