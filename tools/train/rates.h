// The rates that a run's speed is compared with.
#pragma once

#include <optional>

#include "tools/train/session.h"

namespace tessera {

/// FLOP/s of all ranks' devices together; no value if unknown.
struct Rates {
  /// The measured rate of plain matrix products.
  std::optional<double> matmul = {};
  /// The sum of the GPUs' data sheets.
  std::optional<double> peak = {};
};

/// A collective. The peak is looked up; the matmul rate is measured on rank 0 if
/// train.measure_matmul_rate is set, while the other ranks wait. Rank 0 gets the rates.
Rates rates_of(const ResolvedConfig& run, TrainingSession& session, Communicator& world);

/// rate / baseline. No value without a baseline, or above 1: then the machine was disturbed while
/// the baseline was measured.
std::optional<double> share_of_rate(double rate, const std::optional<double>& baseline);

}  // namespace tessera
