// Waits for events. No test measures time: the limit only keeps a failed test from hanging.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace tessera::test {

inline constexpr auto kSafetyLimit = std::chrono::seconds(240);  // CTest's limit is 300

/// Returns when `happened`. Raises an error that names the `event` after the safety limit.
template <typename Happened>
void wait_for(const std::string& event, const Happened& happened) {
  const auto end = std::chrono::steady_clock::now() + kSafetyLimit;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > end) {
      throw std::runtime_error("waited 240 s in vain until " + event);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Returns when the process has taken a signal that was sent to it, so that the next one counts, too.
inline void wait_for_delivery(pid_t process, int number) {
  wait_for("a signal is delivered", [&] {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    std::uint64_t pending = 0;
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigPnd:", 0) == 0 || line.rfind("ShdPnd:", 0) == 0) {
        pending |= std::stoull(line.substr(7), nullptr, 16);
      }
    }
    return (pending >> (number - 1) & 1) == 0;
  });
}

}  // namespace tessera::test
