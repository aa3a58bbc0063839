// RecordedRun: a run folder as its files tell of it, without its model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>

#include "tools/config/config.h"
#include "tools/train/run_state.h"

namespace tessera {

/// Loss and norm of a step, in all their bits; NaN for those that are not finite.
struct StepNumbersSeen {
  float loss = 0.0f;
  double gradient_norm = 0.0;

  /// Two numbers that are not finite are equal.
  bool operator==(const StepNumbersSeen& other) const;
};
/// "loss 2.5 and norm 0.25".
std::string to_string(const StepNumbersSeen& numbers);

class RecordedRun {
 public:
  /// Reads config.yaml and metrics.jsonl. Raises Error if the folder has none of them, or if they are
  /// damaged.
  explicit RecordedRun(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Config& config() const { return config_; }
  /// The steps with a line, by their numbers. A step that a rollback repeated has the last line.
  const std::map<std::int64_t, StepNumbersSeen>& steps() const { return steps_; }

  /// The newest checkpoint before `step`, in the folder or where the run began from; none: it began with
  /// step 1. Raises Error if the run began from a checkpoint that is missing.
  std::optional<std::filesystem::path> checkpoint_before(std::int64_t step) const;
  /// Batches of the data that were done when `step` began.
  std::int64_t batches_before(std::int64_t step) const;

 private:
  void read_metrics();

  std::filesystem::path folder_;
  Config config_;
  std::map<std::int64_t, StepNumbersSeen> steps_;
  /// By step: from the next step on the run has done so many batches more than steps.
  std::map<std::int64_t, std::int64_t> batches_ahead_;
  /// The step and the path that the run first continued from; 0: it began with step 1.
  std::int64_t first_step_ = 0;
  std::string first_path_;
  bool began_ = false;
};

}  // namespace tessera
