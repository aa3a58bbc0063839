#include "tools/plan/predicted_trace.h"

#include "runtime/check.h"
#include "runtime/chrome_trace.h"
#include "tools/plan/figures.h"

namespace tessera {

void write_predicted_trace(const Config& config, const PlanOptions& options,
                           const std::string& path) {
  check(options.machine.has_value(), "a predicted trace needs --machine");
  const PlannedStrategy figures = plan_figures(suited_to(config, options), options).figures;
  check(figures.time.has_value(), "machine '{}' has no rates of the host's memory, for offloading",
        options.machine->name);
  const auto records = records_of(figures.step->log, figures.time->timeline);
  const int rank = figures.prediction.fullest_rank;
  write_chrome_trace(path, std::vector{trace_events(records, rank, /*shift_us=*/0.0)});
}

}  // namespace tessera
