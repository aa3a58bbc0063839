// What mpi_test.cpp starts with mpirun:
//
//   mpi_program checks        every check of communicator_checks.h; says so on rank 0 if all hold
//   mpi_program threads       how many threads each rank has
//   mpi_program FAULT         something goes wrong: see faults() below
//
// It ends as every program does: one line about a failure, and exit status 1.
#include <fmt/format.h>

#include <csignal>
#include <map>

#include "runtime/check.h"
#include "sharding/comm/world.h"
#include "tests/sharding/communicator_checks.h"
#include "tests/sharding/random_calls.h"

namespace tessera {
namespace {

using test::compute;
using test::tensor_of;
using Body = std::function<void(Communicator&)>;

void run_checks(Communicator& world) {
  test::Findings findings;
  std::vector<test::CommunicatorCheck> checks(std::begin(test::kCommunicatorChecks),
                                              std::end(test::kCommunicatorChecks));
  checks.push_back({"random calls", test::check_random_calls});
  for (const test::CommunicatorCheck& check : checks) {
    check.body(world, findings);
    const std::vector<std::string> wrong = findings.wrong();
    if (!wrong.empty()) fail("{}: wrong: {}", check.name, fmt::join(wrong, ", "));
  }
  world.barrier(compute());
  if (world.rank() == 0) fmt::print("all checks hold on {} ranks\n", world.size());
}

/// Far longer than any test waits.
void sleep_for_long() {
  std::this_thread::sleep_for(std::chrono::minutes(5));
}

void barriers(Communicator& world) {
  for (int i = 0; i < 1'000'000; ++i) world.barrier(compute());
}

std::map<std::string, Body> bodies() {
  return {
      {"checks", run_checks},
      {"threads", [](Communicator&) { fmt::print("{} threads\n", context().threads().size()); }},
      {"raises",
       [](Communicator& world) {
         if (world.rank() == 1) throw Error("out of patience");
         barriers(world);
       }},
      {"raises beside a stream",  // whose collective the other ranks never make
       [](Communicator& world) {
         const auto group = world.split(0);
         if (world.rank() != 1) return barriers(*group);
         world.barrier(context().side_stream("communication"));
         throw Error("out of patience");
       }},
      {"raises in a group",
       [](Communicator& world) {
         const auto group = world.split(world.rank() / 2);
         if (world.rank() == 1) throw Error("out of patience");
         barriers(*group);
         barriers(world);
       }},
      {"aborts",
       [](Communicator& world) {
         if (world.rank() == 0) world.abort("enough");
         barriers(world);
       }},
      {"dies",
       [](Communicator& world) {
         world.barrier(compute());
         if (world.rank() == 1) std::raise(SIGKILL);
         barriers(world);
       }},
      {"disagrees",
       [](Communicator& world) {
         world.barrier(compute());
         const Tensor x = tensor_of(world.rank(), world.rank() == 1 ? 8 : 4);
         world.all_reduce({x}, compute(), "h.0");
       }},
      {"does not come",
       [](Communicator& world) {
         if (world.rank() == 1) sleep_for_long();
         world.all_reduce({tensor_of(world.rank(), 4)}, compute(), "h.0");
       }},
      {"leaves early",
       [](Communicator& world) {
         if (world.rank() != 1) world.barrier(compute());
       }},
      {"cannot sum",
       [](Communicator& world) { world.all_reduce({Tensor::zeros({4}, DType::u8)}, compute()); }},
  };
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  try {
    const std::string name = count > 1 ? arguments[1] : "checks";
    const int ranks = count > 2 ? std::stoi(arguments[2]) : 0;
    const bool late = name == "does not come" || name == "leaves early";
    const auto deadline = std::chrono::milliseconds(late ? 500 : 20'000);
    tessera::run_world({.ranks = ranks, .deadline = deadline}, tessera::bodies().at(name));
    return 0;
  } catch (const tessera::FailedElsewhere&) {
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tessera: {}\n", error.what());
    return 1;
  }
}
