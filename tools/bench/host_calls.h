// The host's calls to a GPU in a part of a benchmark.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera {

/// Calls by kind. Fills are copies, and a wait is a copy or a call that makes the host wait.
inline constexpr std::array<std::string_view, 6> kHostCallKinds = {
    "launches", "copies", "events", "collectives", "graph launches", "waits"};
using HostCallCounts = std::array<std::int64_t, kHostCallKinds.size()>;

/// Does this build count calls? Only the emulated GPU does; a real one gets the same calls.
bool counts_host_calls();

/// Those so far; zeros in builds that do not count.
HostCallCounts host_calls();

HostCallCounts operator-(const HostCallCounts& a, const HostCallCounts& b);

/// "launches 40, copies 6, waits 2".
std::string to_string(const HostCallCounts& counts);
nlohmann::ordered_json to_json(const HostCallCounts& counts);

}  // namespace tessera
