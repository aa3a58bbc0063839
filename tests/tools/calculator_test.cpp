// The book's calculator, built for this machine: `tessera plan` with the calculator's own files.
//
// In the browser the same program has 32-bit addresses and no memory behind them. Here its addresses have
// none either, so a kernel that reads a tensor in a dry run ends it. tests/tools/calculator_check.py
// compares the calculator itself, and needs Emscripten.
#include <catch2/catch.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/shell.h"

namespace tessera {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

}  // namespace

TEST_CASE("the calculator has the figures of tessera plan") {
  const std::string arguments = GENERATE(
      "plan gpt2 --ranks 8 --machine h100 sharding.strategy=fsdp runtime.compute_dtype=bf16",
      "plan llama3.2-1b --ranks 8 --nodes 2 --machine a100 sharding.strategy=hsdp "
      "sharding.activation_checkpointing=full sharding.offload=all",
      // Chunks: attention looks for the first key of each query.
      "plan llama4-mini --ranks 4 --machine h200 sharding.strategy=zero3 data.sequence_length=256",
      // Blocks are cut from larger ones, beyond 4 GiB.
      "plan qwen3-30b-a3b --ranks 44 --nodes 4 --machine a100 sharding.strategy=zero2 "
      "runtime.compute_dtype=bf16 sharding.offload=optimizer data.rows_per_rank=31 "
      "data.sequence_length=109");
  const std::string all = arguments + " runtime.threads=1 --json";
  const test::Outcome program = test::run(words_of(all));
  REQUIRE(program.status == 0);
  const test::TemporaryDirectory folder;
  const test::ShellOutcome calculator = test::shell("calculator " + all, folder);
  INFO(all << calculator.err);
  REQUIRE(calculator.status == 0);
  CHECK(calculator.out == program.out);
}

}  // namespace tessera
