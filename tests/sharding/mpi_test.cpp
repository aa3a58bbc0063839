// Ranks that are processes: mpirun starts tests/sharding/mpi_program.cpp.
//
// The program makes the same checks as ranks that are threads. Or it fails, which must end all
// processes soon, with one line that names the rank and the reason.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/cores.h"
#include "runtime/threads.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace {

using Catch::Contains;

struct Outcome {
  int status = -1;
  std::string output;                 // stdout and stderr
  std::vector<std::string> messages;  // lines by the program about a failure
};

/// Runs a shell command to its end.
Outcome run(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.output += buffer.data();
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("tessera: ", 0) == 0) outcome.messages.push_back(line);
  }
  return outcome;
}

/// mpirun -np RANKS mpi_program ARGUMENTS, also as root and with more ranks than cores.
Outcome start(int ranks, const std::string& arguments) {
  return run(
      fmt::format("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                  "ASAN_OPTIONS=detect_leaks=0 "  // OpenMPI's own
                  "timeout --kill-after=5 240 {} --oversubscribe --bind-to none --mca "
                  "odls_base_sigkill_timeout "
                  "0 -np {} {}/bin/mpi_program {} "
                  "2>&1",
                  TESSERA_MPIRUN, ranks, TESSERA_BINARY_DIR, arguments));
}

/// Runs a fault and expects one line with `message`. The program's time stands still, or passes when
/// a rank can be missed. So only an abort ends the other waits, or `timeout` with status 124.
Outcome expect_failure(int ranks, const std::string& fault, const std::string& message) {
  const tessera::test::TemporaryDirectory folder;
  const Outcome outcome = start(ranks, fmt::format("'{}' {}", fault, (folder / "missed").string()));
  INFO(fault << " on " << ranks << " ranks\n" << outcome.output);
  CHECK(outcome.status != 0);
  CHECK(outcome.status != 124);
  CHECK_THAT(outcome.output, !Contains("ended well"));
  REQUIRE(outcome.messages.size() == 1);
  CHECK_THAT(outcome.messages[0], Contains(message));
  return outcome;
}

}  // namespace

TEST_CASE("processes make every check that threads make") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const Outcome outcome = start(ranks, "checks");
    INFO(outcome.output);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.output, Contains(fmt::format("all checks hold on {} ranks", ranks)));
  }
}

TEST_CASE("reductions in two stages, inside nodes and across them, pass the same checks") {
  // Two nodes of two ranks; then three ranks that two nodes cannot share evenly.
  for (const auto& [ranks, arguments] : {std::pair{4, "checks 4 2"}, std::pair{3, "checks 3 2"}}) {
    const Outcome outcome = start(ranks, arguments);
    INFO(outcome.output);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.output, Contains(fmt::format("all checks hold on {} ranks", ranks)));
  }
}

TEST_CASE("a process that raises ends the others, and the failure is reported once") {
  expect_failure(1, "raises", "tessera: out of patience");
  expect_failure(4, "raises", "rank 2: out of patience");
  expect_failure(2, "raises last", "rank 1: out of patience");
  expect_failure(2, "raises next to a stream", "rank 1: out of patience");
  expect_failure(4, "raises in a group", "rank 1: out of patience");
}

TEST_CASE("a process that cannot report its failure leaves the line to another one") {
  expect_failure(2, "raises and is mute", "rank 1: out of patience");
}

TEST_CASE("an abort reaches every process with its reason") {
  // Rank 0 raises at its next call, rank 1 while it waits, rank 2 when it begins to wait later.
  for (const int ranks : {1, 3}) {
    const Outcome outcome = expect_failure(ranks, "aborts", "enough");
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK_THAT(outcome.output, Contains(fmt::format("rank {} raised: enough\n", rank)));
    }
  }
}

TEST_CASE("processes that disagree are both named") {
  expect_failure(
      3, "disagrees",
      "ranks disagree: rank 0 makes call 1, all_reduce of 16 bytes in 1 tensor, for h.0, "
      "rank 1 makes call 1, all_reduce of 32 bytes in 1 tensor, for h.0");
  expect_failure(3, "expects too much",
                 "rank 2: ranks disagree: rank 1 sends 2 elements to rank 2, which expects 3, in "
                 "call 0, all_to_all of 28 bytes in 1 tensor, for rows");
  expect_failure(2, "cannot sum", "cannot sum u8 [");
}

TEST_CASE("processes that disagree after two steps are both named at the step's end") {
  // Calls 0 to 14 are those of the first three steps.
  expect_failure(3, "disagrees in a later step",
                 "ranks disagree: rank 0 makes call 18, all_reduce of 16 bytes in 1 tensor, for "
                 "h.1, rank 1 makes call 18, all_reduce of 16 bytes in 1 tensor, for h.2");
  expect_failure(2, "calls too little in a later step",
                 "ranks disagree: rank 0 makes call 7, broadcast of 0 bytes in 0 tensors, for "
                 "nothing, rank 1 makes no call 7");
  expect_failure(2, "waits in a later step",
                 "for h.0 (sharding.check_collectives: always names the calls of both sides) for "
                 "rank 1");
}

TEST_CASE("a missing process is named when the deadline has passed") {
  expect_failure(3, "is missing",
                 "waited 500 ms in call 0, all_reduce of 16 bytes in 1 tensor, for h.0 for rank 1");
  expect_failure(2, "leaves early", "tessera: rank 0: waited 500 ms in call 0, barrier");
}

TEST_CASE("mpirun ends the others when a process is killed, and names it") {
  const Outcome outcome = start(3, "dies");
  INFO(outcome.output);
  CHECK(outcome.status != 0);
  CHECK_THAT(outcome.output, Contains("process rank 1") && Contains("signal 9"));
  CHECK(outcome.messages.empty());
}

TEST_CASE("a process of a launcher that belongs to another MPI ends with one line") {
  const Outcome outcome =
      run("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 "
          "PMI_SIZE=2 PMI_RANK=1 timeout --kill-after=5 240 " TESSERA_BINARY_DIR
          "/bin/mpi_program checks 2>&1");
  INFO(outcome.output);
  CHECK(outcome.status == 1);
  REQUIRE(outcome.messages.size() == 1);
  CHECK_THAT(outcome.messages[0], Contains("has started 2 processes, but MPI finds 1"));
}

TEST_CASE("another number of ranks than mpirun's is one error") {
  const Outcome outcome = start(2, "checks 4");
  INFO(outcome.output);
  CHECK(outcome.status == 1);
  REQUIRE(outcome.messages.size() == 1);
  CHECK_THAT(outcome.messages[0], Contains("mpirun has started 2 ranks, but 4 are asked for"));
}

TEST_CASE("processes on one machine share out its cores") {
  const Outcome outcome = start(3, "threads");
  INFO(outcome.output);
  CHECK(outcome.status == 0);
  const std::string threads =
      fmt::format("{} threads", std::max(1, tessera::available_threads() / 3));
  const std::string end = "ended well";
  std::vector<std::string> lines;
  std::istringstream output(outcome.output);
  for (std::string line; std::getline(output, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  CHECK(lines == std::vector<std::string>{threads, threads, threads, end, end, end});
}

TEST_CASE("processes that bind their threads take different cores of one machine") {
  const int ranks = std::min(2, tessera::available_threads());
  const Outcome outcome = start(ranks, "core");
  INFO(outcome.output);
  CHECK(outcome.status == 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const int core = tessera::allowed_cores()[static_cast<std::size_t>(rank)];
    CHECK_THAT(outcome.output, Contains(fmt::format("core {}\n", core)));
  }
}

TEST_CASE("more bound threads than cores are one error") {
  const int ranks = tessera::available_threads() + 1;
  if (ranks > 8) return;  // too many processes for a test
  const Outcome outcome = start(ranks, "core");
  INFO(outcome.output);
  CHECK(outcome.status == 1);
  REQUIRE(outcome.messages.size() == 1);
  CHECK_THAT(outcome.messages[0],
             Contains(fmt::format("rank {}: runtime.pin: 1 thread for 0 free cores", ranks - 1)));
}
