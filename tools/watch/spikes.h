// Steps whose loss jumps are kept with their batch (train.keep_spikes).
//
// RUN/kept/step_N.json has the losses, and of every row of the batch its place in the data and its
// tokens: enough to compute the step again from these weights, and to read the texts.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>

#include "models/tokenizers/tokenizer.h"
#include "tools/data/loader.h"

namespace tessera {

/// Sees the loss of every step, the same on all ranks.
class SpikeDetector {
 public:
  /// The losses that a loss is compared with, and the fewest of them.
  static constexpr std::size_t kLosses = 20, kFewest = 5;

  /// `factor` 0: no step is a spike.
  explicit SpikeDetector(double factor) : factor_(factor) {}

  /// The mean of the last losses before this one if it is more than `factor` times the mean, or not
  /// finite. Losses that are not finite are left out of later means.
  std::optional<double> spike(float loss);

 private:
  double factor_;
  std::deque<double> last_;
};

struct KeptStep {
  std::int64_t step = 0;
  /// The number of the batch among the run's, from 0.
  std::int64_t batch = 0;
  float loss = 0.0f;
  double gradient_norm = 0.0;
  double mean_loss = 0.0;
};

/// Writes the step with its whole batch: for each row its number among the run's samples, `inputs`,
/// `targets`, `document_starts` if documents are told apart, and `text` if there is a tokenizer. Returns
/// the problem if that failed: a run is worth more than a kept step.
std::string write_kept(const std::filesystem::path& file, const KeptStep& step,
                       const TokenLoader& loader, const BatchSizes& sizes,
                       const Tokenizer* tokenizer);

/// The kept batch: rows [first_row, first_row + rows) of the file's. Raises Error, with the path, if the
/// file is damaged or has fewer rows.
Batch kept_rows(const std::filesystem::path& file, std::int64_t first_row, std::int64_t rows);

/// RUN/kept/step_12.json.
std::filesystem::path kept_path(const std::filesystem::path& run, std::int64_t step);

}  // namespace tessera
