#include "tools/replay/watched_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/measure/median.h"
#include "tools/train/events.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Reading = std::optional<float> UnitReadings::*;

/// Row `row` of the step, alone.
BatchSource source_of(const ReplayedRank& rank, std::int64_t row) {
  return {[&rank, row](std::int64_t, std::int64_t, std::int64_t) {
            return rank.source.load(rank.step, row, 1);
          },
          [&rank, row](std::int64_t, std::int64_t, std::int64_t) {
            return rank.source.loss_terms(rank.step, row, 1);
          }};
}

/// NaN counts as the largest.
bool is_below(float a, float b) {
  return !std::isnan(a) && (std::isnan(b) || a < b);
}

/// ", its largest activation is 80.5, in h.3"; empty if no unit has the reading.
std::string largest_text(const std::vector<UnitReadings>& readings, Reading reading,
                         std::string_view name) {
  const UnitReadings* largest = nullptr;
  for (const UnitReadings& unit : readings) {
    if (!(unit.*reading)) continue;
    if (largest == nullptr || is_below(*(largest->*reading), *(unit.*reading))) largest = &unit;
  }
  if (largest == nullptr) return "";
  return fmt::format("; its largest {} is {:.4g}, in {}", name, *(largest->*reading),
                     largest->unit);
}

}  // namespace

std::vector<WatchedRow> watch_rows(ReplayedRank& rank, std::int64_t batch,
                                   const BatchSizes& sizes) {
  std::vector<WatchedRow> rows;
  for (std::int64_t row = 0; row < sizes.rows(batch); ++row) {
    const BatchSource source = source_of(rank, row);
    if (source.loss_terms(0, 0, 1) == 0) continue;
    TrainingSession::WatchedLoss watched = rank.session.evaluate_watched(1, source);
    rows.push_back({.row = row,
                    .sample = sizes.first_row(batch) + row,
                    .loss = watched.loss,
                    .readings = std::move(watched.readings)});
  }
  return rows;
}

std::string most_striking(const std::vector<WatchedRow>& rows) {
  if (rows.empty()) return "";
  std::vector<double> losses;
  for (const WatchedRow& row : rows) {
    if (std::isfinite(row.loss)) losses.push_back(row.loss);
  }
  const auto most = std::max_element(
      rows.begin(), rows.end(),
      [](const WatchedRow& a, const WatchedRow& b) { return is_below(a.loss, b.loss); });
  const std::string usual =
      losses.empty() ? "" : fmt::format(" where the median is {:.4g}", median(losses));
  return fmt::format(
      "row {} (sample {}) has the largest loss, {:.4g}{}{}{}", most->row, most->sample, most->loss,
      usual, largest_text(most->readings, &UnitReadings::largest_activation, "activation"),
      largest_text(most->readings, &UnitReadings::attention_logit, "attention logit"));
}

Json json_of(const std::vector<WatchedRow>& rows) {
  Json all = Json::array();
  for (const WatchedRow& row : rows) {
    const Json readings = json_of(row.readings);
    all.push_back({{"row", row.row},
                   {"sample", row.sample},
                   {"loss", finite_or_null(row.loss)},
                   {"largest_activation", readings["largest_activation"]},
                   {"attention_logit", readings["attention_logit"]}});
  }
  return all;
}

}  // namespace tessera
