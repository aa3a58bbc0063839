#include "tools/replay/recorded_run.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/json.h"
#include "sharding/checkpoint/folder.h"
#include "tools/config/parse.h"
#include "tools/train/resume.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

template <typename Float>
bool same(Float a, Float b) {
  return a == b || (!std::isfinite(a) && !std::isfinite(b));
}

/// null stands for a number that is not finite.
double number_of(const Json& line, const char* name) {
  const Json& value = line.at(name);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

bool StepNumbersSeen::operator==(const StepNumbersSeen& other) const {
  return same(loss, other.loss) && same(gradient_norm, other.gradient_norm);
}

std::string to_string(const StepNumbersSeen& numbers) {
  return fmt::format("loss {} and norm {}", numbers.loss, numbers.gradient_norm);
}

RecordedRun::RecordedRun(const fs::path& folder) : folder_(folder) {
  check(fs::exists(folder / kConfigFile), "{} has no {}; name the folder of a run (train.dir)",
        folder.string(), kConfigFile);
  config_ = load_config(folder / kConfigFile);
  read_metrics();
}

void RecordedRun::read_metrics() {
  const fs::path path = folder_ / "metrics.jsonl";
  std::ifstream file(path);
  check(file.good(), "cannot open {}; name the folder of a run (train.dir)", path.string());
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (file.eof()) break;  // no end of line: the run is writing it
    try {
      const Json line = parse_json(text, 8);
      const auto step = line.at("step").get<std::int64_t>();
      const std::string event = line.value("event", "");
      if (event.empty()) {
        steps_[step] = {.loss = static_cast<float>(number_of(line, "loss")),
                        .gradient_norm = number_of(line, "gradient_norm")};
      }
      if (event == "resume" && !began_) {
        first_step_ = step;
        first_path_ = line.at("path");
      }
      began_ |= event.empty();
      if (event != "resume" && event != "rollback") continue;
      batches_ahead_.erase(batches_ahead_.lower_bound(step), batches_ahead_.end());
      steps_.erase(steps_.upper_bound(step), steps_.end());
      batches_ahead_[step] = line.at("batches").get<std::int64_t>() - step;
    } catch (const std::exception& error) {
      fail("{}:{}: not a line of metrics: {}", path.string(), number, error.what());
    }
  }
}

std::optional<fs::path> RecordedRun::checkpoint_before(std::int64_t step) const {
  std::vector<CheckpointFolder> found = checkpoints_in(folder_);
  if (!first_path_.empty() && fs::exists(first_path_)) {
    found.push_back({first_step_, first_path_});
  }
  std::optional<CheckpointFolder> nearest;
  for (const CheckpointFolder& checkpoint : found) {
    if (checkpoint.step >= step || (nearest && checkpoint.step <= nearest->step)) continue;
    nearest = checkpoint;
  }
  if (nearest) return nearest->path;
  check(first_step_ == 0,
        "{}: no checkpoint before step {} is left: the run began after step {} from {}, which is "
        "missing; keep more of them (train.keep_every)",
        folder_.string(), step, first_step_, first_path_);
  return std::nullopt;
}

std::int64_t RecordedRun::batches_before(std::int64_t step) const {
  const auto after = batches_ahead_.lower_bound(step);
  return step - 1 + (after == batches_ahead_.begin() ? 0 : std::prev(after)->second);
}

}  // namespace tessera
