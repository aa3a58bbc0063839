// The rows of a replayed step, one by one: which of them made the loss, an activation or a logit large?
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/replay/replayed_rank.h"
#include "tools/watch/unit_readings.h"

namespace tessera {

struct WatchedRow {
  std::int64_t row = 0;
  /// The row's number in the order of the data.
  std::int64_t sample = 0;
  /// Mean cross-entropy of its valid targets, without dropout.
  float loss = 0.0f;
  /// Norms are 0.
  std::vector<UnitReadings> readings = {};
};

/// Computes the rows of the batch with the weights before the step. Rows without a valid target are left out.
/// A collective that takes a forward pass for each row on every rank.
std::vector<WatchedRow> watch_rows(ReplayedRank& rank, std::int64_t batch, const BatchSizes& sizes);

/// "row 5 (sample 37) has the largest loss, 9.5 where the median is 2.25; its largest activation is 80.5, in
/// h.3; its largest attention logit is 15.25, in h.2". Empty without rows.
std::string most_striking(const std::vector<WatchedRow>& rows);

/// [{"row": 5, "sample": 37, "loss": 9.5, "largest_activation": [...], "attention_logit": [...]}, ...].
nlohmann::ordered_json json_of(const std::vector<WatchedRow>& rows);

}  // namespace tessera
