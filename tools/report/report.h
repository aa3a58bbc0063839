// Report: metrics of runs as one HTML page with charts.
//
// The page holds all it needs: style, code and data. It loads nothing from a network. Its parts are
// the files next to this one; CMake puts them into the program.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera {

/// The most lines of a run that the page draws. Lines between are left out; those with a validation
/// loss stay, and the norms drawn are the largest of the lines that they stand for.
inline constexpr std::size_t kMostReportLines = 2000;
/// The most watched steps; others between are left out.
inline constexpr std::size_t kMostReportWatches = 300;

/// A run folder's metrics.jsonl as the page reads it (tools/report/page.js). Half a line at the end,
/// as of a run that goes on, is left out. Raises Error if the file is missing or is no such file.
nlohmann::ordered_json report_data(const std::filesystem::path& run);

/// The page about these runs.
std::string report_page(const std::vector<std::filesystem::path>& runs);

}  // namespace tessera
