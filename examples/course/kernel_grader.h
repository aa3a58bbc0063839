// The parts that graders of kernels share: a kernel is right under every schedule of the emulator, and reads
// and writes no more sectors than its idea needs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "examples/course/grader.h"
#include "runtime/emulation/device/emulator.h"
#include "sharding/comm/threads/threads.h"

namespace tessera::course {

/// Runs `body` on the emulated GPU.
inline void on_gpu(const std::function<void()>& body) {
  run_ranks({.device = {DeviceType::cuda, 0}, .threads = 1}, [&](Communicator&) { body(); });
}

/// The first element of a tensor that is not right to four digits: "o[0, 3] is 0.41, and 0.27 is right". Empty if
/// all are.
inline std::string first_wrong(std::string_view name, const std::vector<float>& found,
                               const std::vector<float>& right,
                               const std::vector<std::int64_t>& extents) {
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (std::abs(found[i] - right[i]) <= 1e-4F * (std::abs(right[i]) + 0.01F)) continue;
    std::string place;
    auto rest = static_cast<std::int64_t>(i);
    for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent) {
      place = fmt::format("{}{}{}", rest % *extent, place.empty() ? "" : ", ", place);
      rest /= *extent;
    }
    return fmt::format("{}[{}] is {:.4g}, and {:.4g} is right", name, place, found[i], right[i]);
  }
  return "";
}

/// The first text that is not empty.
inline std::string first_of(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "the last digits are wrong";
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

/// The feedback of `check`; if the emulator has found a misuse, its line without the call that the host was in.
inline std::string told(const std::function<std::string()>& check) {
  try {
    return check();
  } catch (const std::exception& error) {
    std::string text = error.what();
    constexpr std::string_view kFailure = "unspecified launch failure: ";
    if (const std::size_t at = text.find(kFailure); at != std::string::npos)
      text.erase(0, at + kFailure.size());
    if (text.find("wait for others") != std::string::npos) {
      text.insert(std::min(text.find('\n'), text.size()),
                  "; a thread without an element must still come to every barrier");
    }
    return text;
  }
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
  grader.grade("sectors", told([&] {
                 std::string feedback;
                 on_gpu([&] { feedback = sectors(); });
                 return feedback;
               }));
#else
  static_cast<void>(sectors);
  grader.grade("right", told(right));
#endif
  return grader.status();
}

}  // namespace tessera::course
