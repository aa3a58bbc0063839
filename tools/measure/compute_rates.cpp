#include "tools/measure/compute_rates.h"

#include <vector>

#include "runtime/check.h"
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

double sum_of(const StreamLog& log, Work::Kind kind, double Work::*amount) {
  double sum = 0.0;
  for (const StreamLog::Entry& entry : log.entries()) {
    if (entry.work && entry.work->kind == kind) sum += *entry.work.*amount;
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

/// The rate of the 8-bit products of a phase, whose other operations have the rate `in_16_bits`.
double rate_in_8_bits(const StreamLog& log, Work::Kind kind, double seconds, double in_16_bits) {
  const double products = sum_of(log, kind, &Work::in_8_bits);
  const double others = sum_of(log, kind, &Work::amount) - products;
  const double left = seconds - others / in_16_bits;
  check(products > 0.0 && left > 0.0,
        "too little of a step's time is products in 8 bits; measure a model with wider layers");
  return products / left;
}

/// The log of a step on one rank, and its times on all ranks at once.
struct MeasuredStep {
  StreamLog log;
  PhaseSeconds seconds;
};

MeasuredStep measure_step(const Config& config, const ComputeMeasurement& how) {
  const ResolvedConfig single = resolve(config);
  MeasuredStep step{.log = dry_run(single, {.threads = how.threads}).log};
  run_ranks({.ranks = how.ranks, .device = how.device, .threads = how.threads},
            [&](Communicator& world) {
              const auto alone = world.split(world.rank());
              with_training_advice(single.config, *alone, [&] {
                const PhaseSeconds here = time_phases(single, world, *alone, how.steps);
                if (world.rank() == 0) step.seconds = here;
              });
            });
  return step;
}

}  // namespace

std::vector<ComputeRates> measure_compute(const ResolvedConfig& run,
                                          const ComputeMeasurement& how) {
  Config config = run.config;
  config.sharding.strategy = StrategyKind::single;
  const bool in_8_bits = config.runtime.compute_dtype.fp8;
  config.runtime.compute_dtype = run.sharding.compute_dtype;
  const MeasuredStep step = measure_step(config, how);
  const auto rate = [&](Work::Kind kind, double seconds) {
    return sum_of(step.log, kind, &Work::amount) / seconds;
  };
  const ComputeRates rates = {.ranks = how.ranks,
                              .threads = how.threads,
                              .dtype = run.sharding.compute_dtype,
                              .forward = rate(Work::Kind::forward, step.seconds.forward),
                              .backward = rate(Work::Kind::backward, step.seconds.backward),
                              .memory = rate(Work::Kind::memory, step.seconds.optimizer)};
  if (!in_8_bits) return {rates};

  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  const auto& [log, seconds] = measure_step(config, how);
  ComputeRates of_products = rates;
  of_products.dtype = DType::e4m3;
  of_products.forward = rate_in_8_bits(log, Work::Kind::forward, seconds.forward, rates.forward);
  of_products.backward =
      rate_in_8_bits(log, Work::Kind::backward, seconds.backward, rates.backward);
  return {rates, of_products};
}

}  // namespace tessera
