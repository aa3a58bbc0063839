#include "tools/bench/host_calls.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/host_calls.h"
#endif

namespace tessera {

#if defined(TESSERA_EMULATED)

bool counts_host_calls() {
  return true;
}

HostCallCounts host_calls() {
  const emulation::HostCalls calls = emulation::host_calls_by_kind();
  HostCallCounts counts{};
  std::size_t i = 0;
  for (const std::uint64_t of_kind :
       {calls.launches, calls.copies, calls.events, calls.collectives, calls.graphs, calls.waits}) {
    counts[i++] = static_cast<std::int64_t>(of_kind);
  }
  return counts;
}

#else

bool counts_host_calls() {
  return false;
}

HostCallCounts host_calls() {
  return {};
}

#endif

HostCallCounts operator-(const HostCallCounts& a, const HostCallCounts& b) {
  HostCallCounts difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return difference;
}

std::string to_string(const HostCallCounts& counts) {
  std::string text;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kHostCallKinds[i], counts[i]);
  }
  return text.empty() ? "none" : text;
}

nlohmann::ordered_json to_json(const HostCallCounts& counts) {
  nlohmann::ordered_json entries;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    entries[std::string(kHostCallKinds[i])] = counts[i];
  }
  return entries;
}

}  // namespace tessera
