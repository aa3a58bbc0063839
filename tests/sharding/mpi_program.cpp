// The program that mpi_test.cpp starts with mpirun.
//
//   mpi_program checks [RANKS [NODE]]  every check of communicator_checks.h; rank 0 prints a line if
//                                      all hold. RANKS is asked for; NODE ranks count as a node.
//   mpi_program threads                prints the number of threads of each rank
//   mpi_program core                   prints the core of each rank, whose one thread is bound
//   mpi_program FAULT [FILE]           one of the failures in bodies() below; ranks that are about to
//                                      miss a deadline tell the others so by FILE
//
// It ends as every program does: one line about a failure, and exit status 1. A rank of a world
// that has not failed prints "ended well".
#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
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

/// Set on a rank that fails and cannot report it.
bool is_mute = false;

/// Time stands still until the other ranks can be missed, which FILE tells. Then a millisecond passes
/// with each question about the time: a rank asks between two looks for messages.
class ProgramClock final : public DeadlineClock {
 public:
  explicit ProgramClock(std::string file) : file_(std::move(file)) {}

  TimePoint now() override {
    if (waiter_ && ++questions_ == 3) tell();
    if (!waiter_ && !passes_) passes_ = !file_.empty() && std::filesystem::exists(file_);
    if (passes_) ++milliseconds_;
    return TimePoint(std::chrono::milliseconds(milliseconds_));
  }
  /// From now on this rank can be missed.
  void tell() const { std::ofstream file(file_); }
  /// Time stands still for this rank. It tells when its call has begun to wait.
  void wait_for_ever() { waiter_ = true; }

 private:
  const std::string file_;
  std::atomic<bool> waiter_ = false, passes_ = false;
  std::atomic<int> questions_ = 0, milliseconds_ = 0;
};

/// Far longer than any test waits.
void sleep_for_long() {
  std::this_thread::sleep_for(std::chrono::minutes(5));
}

void barriers(Communicator& world) {
  for (int i = 0; i < 1'000'000; ++i) world.barrier(compute());
}

std::map<std::string, Body> bodies(ProgramClock& clock) {
  return {
      {"checks", run_checks},
      {"threads", [](Communicator&) { fmt::print("{} threads\n", context().threads().size()); }},
      {"core", [](Communicator&) { fmt::print("core {}\n", sched_getcpu()); }},
      {"raises and is mute",
       [](Communicator& world) {
         is_mute = world.rank() == 1;
         if (is_mute) throw Error("out of patience");
         barriers(world);
       }},
      {"raises",
       [](Communicator& world) {
         if (world.rank() == world.size() / 2) throw Error("out of patience");
         barriers(world);
       }},
      {"raises last",  // when the other ranks have left their bodies
       [](Communicator& world) {
         if (world.rank() == 0) return;
         std::this_thread::sleep_for(std::chrono::milliseconds(100));  // a fast rank has left
         throw Error("out of patience");
       }},
      {"raises next to a stream",  // with a collective that the other ranks never make
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
         if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
         try {
           barriers(world);
         } catch (const Error& error) {
           fmt::print("rank {} raised: {}\n", world.rank(), error.what());
           std::fflush(stdout);
           throw;
         }
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
      {"is missing",
       [&](Communicator& world) {
         if (world.rank() == 1) sleep_for_long();
         if (world.rank() == 2) clock.wait_for_ever();
         world.all_reduce({tensor_of(world.rank(), 4)}, compute(), "h.0");
       }},
      {"leaves early",
       [&](Communicator& world) {
         if (world.rank() == 1) return clock.tell();
         world.barrier(compute());
       }},
      {"disagrees in a later step",  // when calls are compared once per step
       [](Communicator& world) {
         const auto group = world.split(0);
         for (int step = 0; step < 4; ++step) {
           for (int i = 0; i < 3; ++i) group->all_reduce({tensor_of(0, 4)}, compute(), "h.0");
           const bool other = step == 3 && world.rank() == 1;
           group->all_reduce({tensor_of(0, 4)}, compute(), other ? "h.2" : "h.1");
           group->all_reduce({tensor_of(0, 4)}, compute(), "head");
           world.next_step(compute());
         }
       }},
      {"calls too little in a later step",
       [](Communicator& world) {
         for (int step = 0; step < 4; ++step) {
           world.all_reduce({tensor_of(0, 4)}, compute(), "h.0");
           // A broadcast of nothing sends no message that the others could miss.
           const bool other = step == 3 && world.rank() == 1;
           if (!other) world.broadcast({}, 0, compute(), "nothing");
           world.next_step(compute());
         }
       }},
      {"waits in a later step",
       [&](Communicator& world) {
         for (int step = 0; step < 4; ++step) {
           if (step == 3 && world.rank() == 1) {
             clock.tell();
             sleep_for_long();
           }
           world.all_reduce({tensor_of(0, 4)}, compute(), "h.0");
           world.next_step(compute());
         }
       }},
      {"expects too much",
       [](Communicator& world) {
         const std::int64_t more = world.rank() == 2 ? 1 : 0;
         world.all_to_all_parts({tensor_of(0, 6 + more), {2, 2 + more, 2}},
                                {tensor_of(0, 6), {2, 2, 2}}, compute(), "rows");
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
    const bool checks = name == "checks";
    const int ranks = checks && count > 2 ? std::stoi(arguments[2]) : 0;
    const int ranks_per_node = count > 3 ? std::stoi(arguments[3]) : 0;
    tessera::ProgramClock clock(!checks && count > 2 ? arguments[2] : "");
    const bool pin = name == "core";
    const auto report_delay =
        std::chrono::milliseconds(name == "raises and is mute" ? 500 : 240'000);
    tessera::run_world({.ranks = ranks,
                        .threads = pin ? 1 : 0,
                        .pin = pin,
                        .deadline = {std::chrono::milliseconds(500), clock},
                        .report_delay = report_delay,
                        .ranks_per_node = ranks_per_node},
                       tessera::bodies(clock).at(name));
    fmt::print("ended well\n");
    return 0;
  } catch (const std::exception& error) {
    if (tessera::is_mute) tessera::sleep_for_long();
    fmt::print(stderr, "tessera: {}\n", error.what());
    return 1;
  }
}
