// The parts that graders of kernels share: a kernel is right under every schedule of the emulator, and reads
// and writes no more sectors than its idea needs.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <set>
#include <string>

#include "examples/course/grader.h"
#include "runtime/emulation/device/emulator.h"
#include "sharding/comm/threads/threads.h"

namespace tessera::course {

/// Runs `body` on the emulated GPU.
inline void on_gpu(const std::function<void()>& body) {
  run_ranks({.device = {DeviceType::cuda, 0}, .threads = 1}, [&](Communicator&) { body(); });
}

/// The feedback of `check`, which runs under several orders of threads and blocks.
inline std::string under_every_schedule(const std::function<std::string()>& check) {
  using emulation::Order;
  std::set<std::string> feedbacks;
  for (const emulation::Schedule& schedule :
       {emulation::Schedule{}, emulation::Schedule{Order::reverse, Order::reverse},
        emulation::Schedule{Order::shuffled, Order::shuffled, 1},
        emulation::Schedule{Order::shuffled, Order::forward, 2},
        emulation::Schedule{Order::shuffled, Order::reverse, 3}}) {
    emulation::set_schedule(schedule);
    on_gpu([&] { feedbacks.insert(check()); });
  }
  if (feedbacks.size() == 1) return *feedbacks.begin();
  return *feedbacks.rbegin() +
         ", and the result depends on the order of the threads: does one read what another has not "
         "written yet, or write over what another still reads?";
}

/// Sectors of 32 bytes that the kernel may read and write.
struct Sectors {
  std::uint64_t reads = 0, writes = 0;
};

inline std::string too_many_sectors(const emulation::Statistics& work, const Sectors& needed,
                                    const char* idea) {
  const auto more = [&](const char* does, std::uint64_t found, std::uint64_t enough) {
    return fmt::format("it {} {} sectors, and {} are enough ({:.1f} times as many): {}", does,
                       found, enough, static_cast<double>(found) / static_cast<double>(enough),
                       idea);
  };
  if (work.reads.sectors == 0) return "it reads nothing";
  if (work.reads.sectors > needed.reads) return more("reads", work.reads.sectors, needed.reads);
  if (work.writes.sectors > needed.writes)
    return more("writes", work.writes.sectors, needed.writes);
  return "";
}

/// Grades "right" in the program with the sanitizers, or "sectors" in the one that counts accesses.
inline int grade_kernel(const std::function<std::string()>& right,
                        const std::function<std::string()>& sectors) {
  Grader grader;
#if defined(TESSERA_COUNTS)
  static_cast<void>(right);
  grader.run("sectors", [&] {
    std::string feedback;
    on_gpu([&] { feedback = sectors(); });
    return feedback;
  });
#else
  static_cast<void>(sectors);
  grader.run("right", right);
#endif
  return grader.status();
}

}  // namespace tessera::course
