#include "tools/checkpoint/inspect.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"

namespace tessera {
namespace {

std::int64_t bytes_of(const CheckpointManifest& manifest) {
  std::int64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  return bytes;
}

std::int64_t ranks_of(const CheckpointManifest& manifest) {
  std::int64_t ranks = 0;
  for (const auto& [name, file] : manifest.files) ranks += name.starts_with("rank-") ? 1 : 0;
  return ranks;
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

/// A number of the state; "-" if it was not finite.
std::string number_of(const nlohmann::json& state, const char* name) {
  const auto found = state.find(name);
  const bool finite = found != state.end() && found->is_number();
  return finite ? fmt::format("{:.4f}", found->get<double>()) : "-";
}

std::string row_of(const CheckpointFolder& checkpoint) {
  const std::string name = checkpoint.path.filename().string();
  try {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint.path);
    const auto state = nlohmann::json::parse(manifest.state);
    return fmt::format("{:<14} {:>5} {:>12} {:>9} {:>9}  {}\n", name, ranks_of(manifest),
                       mebibytes(bytes_of(manifest)), number_of(state, "loss"),
                       number_of(state, "gradient_norm"), manifest.healthy ? "yes" : "no");
  } catch (const Error& error) {
    return fmt::format("{:<14} {}\n", name, error.what());
  }
}

}  // namespace

std::string checkpoint_table(const std::filesystem::path& path) {
  std::string table = fmt::format("{:<14} {:>5} {:>12} {:>9} {:>9}  {}\n", "checkpoint", "ranks",
                                  "size", "loss", "norm", "healthy");
  for (const CheckpointFolder& checkpoint : checkpoints_at(path)) table += row_of(checkpoint);
  return table;
}

Verification verify_checkpoints(const std::filesystem::path& path) {
  Verification result;
  for (const CheckpointFolder& checkpoint : checkpoints_at(path)) {
    ++result.checkpoints;
    std::vector<std::string> problems;
    try {
      CheckpointReader reader(checkpoint.path);
      problems = reader.problems();
      if (problems.empty()) {
        result.lines.push_back(fmt::format("{}: good, {} in {} files", checkpoint.path.string(),
                                           mebibytes(bytes_of(reader.manifest())),
                                           reader.manifest().files.size()));
      }
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
    if (!problems.empty()) ++result.damaged;
    result.lines.insert(result.lines.end(), problems.begin(), problems.end());
  }
  return result;
}

}  // namespace tessera
