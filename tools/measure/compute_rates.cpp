#include "tools/measure/compute_rates.h"

#include <vector>

#include "runtime/context.h"
#include "sharding/comm/threads/threads.h"
#include "tools/config/kernel_options.h"
#include "tools/measure/median.h"
#include "tools/measure/workload.h"
#include "tools/plan/advice.h"
#include "tools/plan/dry_run.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

double amount_of(const StreamLog& log, Work::Kind kind) {
  double sum = 0.0;
  for (const StreamLog::Entry& entry : log.entries()) {
    if (entry.work && entry.work->kind == kind) sum += entry.work->amount;
  }
  return sum;
}

/// Seconds of the phases of a step, as medians over the steps.
struct PhaseSeconds {
  double forward = 0.0, backward = 0.0, optimizer = 0.0;
};

/// Each rank of `world` trains `alone`, but all at the same time.
PhaseSeconds time_phases(const ResolvedConfig& run, Communicator& world, Communicator& alone,
                         int steps) {
  choose_kernels(run.config);
  TrainingSession session(run, alone);
  const BatchSource batches = random_tokens(run.config.data, session.model().shape().vocab_size);
  Profiler& profiler = context().profiler();
  std::vector<double> forward, backward, optimizer;
  for (int step = 0; step <= steps; ++step) {
    world.barrier(context().compute_stream()).synchronize();
    profiler.reset_totals();
    session.step(step + 1, batches);
    context().compute_stream().synchronize();
    if (step == 0) continue;  // it fills the allocator's cache
    forward.push_back(1e-3 * profiler.total_ms("forward"));
    backward.push_back(1e-3 * profiler.total_ms("backward"));
    optimizer.push_back(1e-3 * profiler.total_ms("optimizer"));
  }
  return {median(forward), median(backward), median(optimizer)};
}

}  // namespace

ComputeRates measure_compute(const ResolvedConfig& run, const ComputeMeasurement& how) {
  Config alone = run.config;
  alone.sharding.strategy = StrategyKind::single;
  const ResolvedConfig single = resolve(alone);
  const StepMemory step = dry_run(single, {.threads = how.threads});
  PhaseSeconds seconds;
  run_ranks({.ranks = how.ranks, .device = how.device, .threads = how.threads},
            [&](Communicator& world) {
              const auto alone = world.split(world.rank());
              with_training_advice(single.config, *alone, [&] {
                const PhaseSeconds here = time_phases(single, world, *alone, how.steps);
                if (world.rank() == 0) seconds = here;
              });
            });
  return {.ranks = how.ranks,
          .threads = how.threads,
          .dtype = single.sharding.compute_dtype,
          .forward = amount_of(step.log, Work::Kind::forward) / seconds.forward,
          .backward = amount_of(step.log, Work::Kind::backward) / seconds.backward,
          .memory = amount_of(step.log, Work::Kind::memory) / seconds.optimizer};
}

}  // namespace tessera
