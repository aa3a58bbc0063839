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
//   warmup_stable_decay  the peak, then over the last decay_steps a straight line to the floor
//                        (Hu et al. 2024, "MiniCPM")
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/enum_names.h"

namespace tessera {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, warmup_stable_decay };

template <>
inline constexpr EnumNames<ScheduleKind> kEnumNames<ScheduleKind> = {
    "schedule", {"constant", "linear", "cosine", "warmup_stable_decay"}};

inline std::string_view name_of(ScheduleKind kind) {
  return enum_name(kind);
}

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::cosine;
  /// The peak.
  double learning_rate = 1e-3;
  /// The floor as a fraction of the peak.
  double minimum_ratio = 0.1;
  std::int64_t warmup_steps = 0;
  /// Steps of the whole run. `constant` does not use it.
  std::int64_t total_steps = 0;
  /// Only for warmup_stable_decay.
  std::int64_t decay_steps = 0;
};

/// Raises Error that names the first wrong option.
void check_schedule(const ScheduleOptions& options);

/// Raises Error on wrong options or a negative step.
double learning_rate_at(const ScheduleOptions& options, std::int64_t step);

}  // namespace tessera
