// UnitReadings: the numbers of one unit in a watched step (train.watch).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

/// Norms are those of the unit's trained parameters. They are NaN or infinite if a value is.
struct UnitReadings {
  std::string unit;
  /// The gradient's, before clipping.
  double gradient_norm = 0.0;
  /// That by which the step changed the masters; 0 if the step was skipped.
  double update_norm = 0.0;
  /// The masters', before the update.
  double weight_norm = 0.0;
  /// The largest magnitude in the residual stream behind the unit. No value: a head.
  std::optional<float> largest_activation = {};
  /// No value: the unit has no attention, or no logit above 0.
  std::optional<float> attention_logit = {};
  /// The mean over tokens, by natural logarithms: log(E) for equal probabilities of E experts. No value: the
  /// unit has no router.
  std::optional<double> router_entropy = {};

  bool operator==(const UnitReadings&) const = default;
};

/// {"units": ["embedding", "h.0"], "gradient_norm": [0.5, 0.25], ...}: a list for every reading that a unit
/// has, with null for a unit without it, and `update_ratio`, the norm of the update over that of the weights.
nlohmann::ordered_json json_of(const std::vector<UnitReadings>& readings);

/// The numbers of such an object by names such as "watch/gradient_norm/h.0".
std::vector<std::pair<std::string, double>> watch_scalars(const nlohmann::ordered_json& readings);

}  // namespace tessera
