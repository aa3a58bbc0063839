// The JSON reports of the benchmarks.
//
// Every report is an object that begins with the same entries: "program"; "time" (UTC, ISO 8601) and
// "host" of the run; "device" of rank 0, "ranks", and "threads" of each rank. The program's own
// settings and figures follow.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tessera {

/// A report with the entries of every benchmark: program, time, host, device, ranks, threads.
nlohmann::ordered_json new_report(std::string_view program);

/// Writes the report atomically; does nothing if `path` is empty.
void write_report(const std::filesystem::path& path, const nlohmann::ordered_json& report);

}  // namespace tessera
