#include "tools/bench/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera {
namespace {

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / 0x1p20);
}

/// The width of the first column.
std::size_t name_width(const std::vector<RowFigures>& all) {
  std::size_t width = 10;
  for (const RowFigures& row : all) width = std::max(width, row.name.size());
  return width;
}

void print_bytes_and_times(const std::vector<RowFigures>& all) {
  const std::size_t width = name_width(all);
  const auto line = [&](const std::string& name, const auto&... cells) {
    fmt::print("{:<{}} ", name, width);
    fmt::print("{:>10} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>8} {:>9}  {}\n", cells...);
  };
  const std::string& first = all.front().name;
  line("", "parameters", "gradients", "optimizer", "slots", "total", "activations", "sent/step",
       "step", "exposed", "tokens/s", "vs " + first);
  line("", "MiB", "MiB", "MiB", "MiB", "MiB", "MiB", "MiB", "ms", "ms", "", "median [least, most]");
  for (const RowFigures& row : all) {
    const Footprint& bytes = row.measured;
    line(row.name, mebibytes(bytes.parameters), mebibytes(bytes.gradients),
         mebibytes(bytes.optimizer), mebibytes(bytes.communication), mebibytes(row.total),
         mebibytes(row.activations), mebibytes(bytes.bytes_sent),
         fmt::format("{:.2f}", row.step_ms), fmt::format("{:.2f}", row.exposed_communication_ms),
         fmt::format("{:.0f}", row.tokens_per_second),
         fmt::format("{:.3f} [{:.3f}, {:.3f}]", row.step_ratio, row.least_step_ratio,
                     row.most_step_ratio));
  }
  fmt::print(
      "\nBytes are those of the rank with the most, measured on every rank and as predicted to the "
      "byte.\n"
      "slots hold gathered parameters and gradients on their way; total is the sum of the four "
      "columns before it, on one rank.\n"
      "exposed is the time per step that computation waits for communication.\n"
      "vs {} divides the time of each step by that of the {} step right before it.\n",
      first, first);
  for (const RowFigures& row : all) {
    if (row.expert_bytes_sent == 0) continue;
    fmt::print("{} also sends {} MiB of rows to experts and back, as the routers decide.\n",
               row.name, mebibytes(row.expert_bytes_sent));
  }
}

/// "same bits", or the reason for others.
std::string relation(const Comparison& comparison, std::size_t i) {
  const RowFigures& row = comparison.figures[i];
  const RowFigures& first = comparison.figures.front();
  if (same_bits(row, first)) return "same bits";
  if (comparison.any_order) return "in NCCL's order";
  const auto otherwise =
      computes_otherwise(comparison.rows[i].config, comparison.rows.front().config);
  if (!otherwise.empty()) {
    constexpr std::size_t kMost = 3;
    const std::size_t shown = std::min(kMost, otherwise.size());
    return fmt::format("computes otherwise: {}{}",
                       fmt::join(otherwise.begin(), otherwise.begin() + shown, ", "),
                       otherwise.size() > shown ? ", ..." : "");
  }
  return agree(row, first) ? "sums in another order: equal to rounding" : "OTHER BITS";
}

void print_results(const Comparison& comparison) {
  const std::size_t width = name_width(comparison.figures);
  fmt::print("{:<{}} {:>14} {:>22} {:>18}\n", "", width, "loss", "gradient norm", "weights");
  for (std::size_t i = 0; i < comparison.figures.size(); ++i) {
    const RowFigures& row = comparison.figures[i];
    fmt::print("{:<{}} {:>14.9g} {:>22.17g} {:>18}  {}\n", row.name, width, row.loss,
               row.gradient_norm, fmt::format("{:016x}", row.weights_checksum),
               relation(comparison, i));
  }
}

bool must_agree(const Comparison& comparison, std::size_t i) {
  return !comparison.any_order &&
         computes_otherwise(comparison.rows[i].config, comparison.rows.front().config).empty();
}

/// "All agree ...", or the rows that do not.
std::string verdict(const Comparison& comparison) {
  const RowFigures& first = comparison.figures.front();
  std::string others, rounded, otherwise;
  std::size_t compared = 0;
  for (std::size_t i = 0; i < comparison.figures.size(); ++i) {
    const RowFigures& row = comparison.figures[i];
    if (!must_agree(comparison, i) && !same_bits(row, first)) {
      otherwise += fmt::format("{}{}", otherwise.empty() ? "" : ", ", row.name);
      continue;
    }
    ++compared;
    if (!agree(row, first)) others += fmt::format(" {}", row.name);
    if (!same_bits(row, first)) rounded += fmt::format(", {} to rounding", row.name);
  }
  if (!others.empty()) {
    return fmt::format("They do NOT agree: other results than {}:{}.", first.name, others);
  }
  const std::string left_out =
      otherwise.empty() ? "" : fmt::format("Not compared by results: {}. ", otherwise);
  if (compared == 1 && !otherwise.empty())
    return left_out + "No other row computes the same as the first.";
  return fmt::format("{}All {}agree: one loss, one gradient norm, the same weights{}.", left_out,
                     otherwise.empty() ? "" : "others ", rounded);
}

nlohmann::ordered_json predicted_and_measured(const RowFigures& row,
                                              std::int64_t Footprint::*part) {
  return {{"predicted", row.predicted.*part}, {"measured", row.measured.*part}};
}

}  // namespace

bool Comparison::agrees() const {
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (must_agree(*this, i) && !agree(figures[i], figures.front())) return false;
  }
  return true;
}

void print(const Comparison& comparison) {
  print_bytes_and_times(comparison.figures);
  fmt::print("\n");
  print_results(comparison);
  fmt::print("\n{}\n", verdict(comparison));
}

nlohmann::ordered_json json_of(const Comparison& comparison) {
  auto rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < comparison.figures.size(); ++i) {
    const RowFigures& row = comparison.figures[i];
    auto changes = nlohmann::ordered_json::object();
    for (const auto& [key, value] :
         changes_of(comparison.rows[i].config, comparison.rows.front().config)) {
      changes[key] = value;
    }
    rows.push_back({
        {"name", row.name},
        {"strategy", row.strategy},
        {"changes", changes},
        {"parameters", row.parameters},
        {"loss", std::stod(fmt::format("{:.9g}", row.loss))},  // a float's digits
        {"gradient_norm", row.gradient_norm},
        {"weights_checksum", fmt::format("{:016x}", row.weights_checksum)},
        {"must_agree", must_agree(comparison, i)},
        {"same_bits", same_bits(row, comparison.figures.front())},
        {"bytes_sent", predicted_and_measured(row, &Footprint::bytes_sent)},
        {"expert_bytes_sent", row.expert_bytes_sent},
        {"memory",
         {{"parameters", predicted_and_measured(row, &Footprint::parameters)},
          {"gradients", predicted_and_measured(row, &Footprint::gradients)},
          {"optimizer", predicted_and_measured(row, &Footprint::optimizer)},
          {"slots", predicted_and_measured(row, &Footprint::communication)}}},
        {"total_bytes", row.total},
        {"activations_bytes", row.activations},
        {"step_ms", row.step_ms},
        {"tokens_per_second", row.tokens_per_second},
        {"communication_ms", row.communication_ms},
        {"exposed_communication_ms", row.exposed_communication_ms},
        {"step_ratio", row.step_ratio},
        {"least_step_ratio", row.least_step_ratio},
        {"most_step_ratio", row.most_step_ratio},
    });
  }
  return rows;
}

}  // namespace tessera
