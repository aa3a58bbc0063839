// Learning rate schedules: the learning rate as a function of the step.
//
// Steps are counted from 0 to total_steps - 1. The first warmup_steps rise linearly to the peak:
// peak * (step + 1) / warmup_steps. The steps after them depend on the kind. Schedules that decay
// reach the floor, peak * minimum_ratio, exactly at the last step, and stay there if training goes
// on.
//
//   constant             the peak
//   linear               a straight line from the peak at step warmup_steps to the floor
//   cosine               half a cosine wave between the same points (Loshchilov, Hutter 2017)
//   warmup_stable_decay  the peak, then over the last decay_steps to the floor (Hu et al. 2024,
//                        "MiniCPM"), along the decay_shape
//   table                the peak times the factor of the last stage that has begun
//
// With s, the share of the decay that is done, the height above the floor is 1 - s for the shape
// linear, (1 + cos(pi s)) / 2 for cosine, and 1 - sqrt(s) for sqrt (Hagele et al. 2024, "Scaling Laws and
// Compute-Optimal Training Beyond Fixed Training Durations").
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/enum_names.h"

namespace tessera {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, warmup_stable_decay, table };
enum class DecayShape : std::uint8_t { linear, cosine, sqrt };

template <>
inline constexpr EnumNames<ScheduleKind> kEnumNames<ScheduleKind> = {
    "schedule", {"constant", "linear", "cosine", "warmup_stable_decay", "table"}};
template <>
inline constexpr EnumNames<DecayShape> kEnumNames<DecayShape> = {"decay shape",
                                                                 {"linear", "cosine", "sqrt"}};

inline std::string_view name_of(ScheduleKind kind) {
  return enum_name(kind);
}

/// From `step` on, counted from 1, the learning rate is the peak times `factor`.
struct ScheduleStage {
  std::int64_t step = 1;
  double factor = 1.0;
  bool operator==(const ScheduleStage&) const = default;
};

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::cosine;
  /// The peak.
  double learning_rate = 1e-3;
  /// The floor as a fraction of the peak.
  double minimum_ratio = 0.1;
  std::int64_t warmup_steps = 0;
  /// Steps of the whole run. `constant` and `table` do not use it.
  std::int64_t total_steps = 0;
  /// Only for warmup_stable_decay.
  std::int64_t decay_steps = 0;
  DecayShape decay_shape = DecayShape::linear;
  /// Only for table: at least one stage, in the order of their steps. The factor is 1 before the first.
  std::vector<ScheduleStage> table = {};
};

/// Raises Error that names the first wrong option.
void check_schedule(const ScheduleOptions& options);

/// Raises Error on wrong options or a negative step.
double learning_rate_at(const ScheduleOptions& options, std::int64_t step);

}  // namespace tessera
