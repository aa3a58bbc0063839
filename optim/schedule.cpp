#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/check.h"
#include "runtime/elementary.h"

namespace tessera {
namespace {

// The progress of the decay, in [0, 1]: 0 up to step `begin`, 1 from the last step on.
double decay_progress(const ScheduleOptions& options, std::int64_t begin, std::int64_t step) {
  const std::int64_t last = options.total_steps - 1;
  if (step >= last) return 1.0;
  if (step <= begin) return 0.0;
  return static_cast<double>(step - begin) / static_cast<double>(last - begin);
}

double height_of(DecayShape shape, double progress) {
  switch (shape) {
    case DecayShape::linear:
      return 1.0 - progress;
    case DecayShape::cosine:
      return 0.5 * (1.0 + cosine(std::numbers::pi * progress));
    case DecayShape::sqrt:
      return 1.0 - std::sqrt(progress);
  }
  fail("unknown decay shape {}", static_cast<int>(shape));
}

// The factor of a table's last stage that has begun.
double factor_at(const std::vector<ScheduleStage>& table, std::int64_t step) {
  double factor = 1.0;
  for (const ScheduleStage& stage : table) {
    if (stage.step <= step + 1) factor = stage.factor;
  }
  return factor;
}

// The learning rate after warm-up, as a fraction of the way from the floor to the peak.
double height(const ScheduleOptions& options, std::int64_t step) {
  switch (options.kind) {
    case ScheduleKind::constant:
      return 1.0;
    case ScheduleKind::table:
      return factor_at(options.table, step);
    case ScheduleKind::linear:
      return height_of(DecayShape::linear, decay_progress(options, options.warmup_steps, step));
    case ScheduleKind::cosine:
      return height_of(DecayShape::cosine, decay_progress(options, options.warmup_steps, step));
    case ScheduleKind::warmup_stable_decay: {
      const std::int64_t begin = options.total_steps - options.decay_steps - 1;
      return height_of(options.decay_shape, decay_progress(options, begin, step));
    }
  }
  fail("unknown schedule kind {}", static_cast<int>(options.kind));
}

void check_table(const std::vector<ScheduleStage>& table) {
  check(!table.empty(), "table has 0 stages; a table schedule needs at least 1");
  std::int64_t last = 0;
  for (const ScheduleStage& stage : table) {
    check(stage.step > last, "table has step {} after {}; steps must rise, from 1", stage.step,
          last);
    check(std::isfinite(stage.factor) && stage.factor >= 0.0,
          "table has the factor {}; it must be a number of at least 0", stage.factor);
    last = stage.step;
  }
}

}  // namespace

void check_schedule(const ScheduleOptions& o) {
  check(std::isfinite(o.learning_rate) && o.learning_rate >= 0.0,
        "learning_rate is {}; it must be a number of at least 0", o.learning_rate);
  check(0.0 <= o.minimum_ratio && o.minimum_ratio <= 1.0,
        "minimum_ratio is {}; it must be between 0 and 1", o.minimum_ratio);
  check(o.warmup_steps >= 0, "warmup_steps is {}; it must be at least 0", o.warmup_steps);
  if (o.kind == ScheduleKind::constant) return;
  if (o.kind == ScheduleKind::table) return check_table(o.table);
  check(o.total_steps >= 1, "total_steps is {}; a {} schedule needs at least 1", o.total_steps,
        name_of(o.kind));
  check(o.warmup_steps <= o.total_steps, "warmup_steps is {}; it must be at most total_steps = {}",
        o.warmup_steps, o.total_steps);
  if (o.kind != ScheduleKind::warmup_stable_decay) return;
  check(0 <= o.decay_steps && o.decay_steps <= o.total_steps - o.warmup_steps,
        "decay_steps is {}; it must be between 0 and total_steps - warmup_steps = {}",
        o.decay_steps, o.total_steps - o.warmup_steps);
}

double learning_rate_at(const ScheduleOptions& options, std::int64_t step) {
  check_schedule(options);
  check(step >= 0, "the step is {}; expected at least 0", step);
  const double peak = options.learning_rate;
  if (step < options.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  const bool falls_to_zero = options.kind == ScheduleKind::table;
  const double floor = falls_to_zero ? 0.0 : peak * options.minimum_ratio;
  return floor + (peak - floor) * height(options, step);
}

}  // namespace tessera
