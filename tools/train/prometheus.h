// Metrics in Prometheus's text format, version 0.0.4
// (prometheus.io/docs/instrumenting/exposition_formats).
//
//   # HELP tessera_loss Mean cross-entropy of this step's valid targets, before the update.
//   # TYPE tessera_loss gauge
//   tessera_loss 2.5
//   tessera_peak_bytes{key="optimizer"} 12345
//   tessera_watch_gradient_norm{unit="h.0"} 0.25
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {

/// The numbers of a line of metrics.jsonl. Objects and lists have a sample for each `key`; texts and null have
/// none.
std::string prometheus_text(const nlohmann::json& line);

/// The readings of a watched step (UnitReadings), with a sample for each `unit`.
std::string prometheus_watch(const nlohmann::ordered_json& readings);

}  // namespace tessera
