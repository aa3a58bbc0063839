#include "tools/train/rates.h"

#include <algorithm>

#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "tools/measure/matmul_rate.h"

namespace tessera {
namespace {

// The fastest of several counts: other programs slow a measurement down, and nothing speeds it up.
constexpr int kRepeats = 5;

/// On the CPU the threads of all ranks multiply matrices of the shapes that all ranks compute at a
/// time. On GPUs one rank's shapes are timed on one GPU, and the rate counts for each of them.
double measure(const ResolvedConfig& run, TrainingSession& session, int ranks) {
  const int gpus = gpus_of(context().device(), ranks);
  const int ranks_at_a_time = gpus > 0 ? 1 : ranks;
  const std::int64_t tokens =
      session.rows_per_micro_batch() * ranks_at_a_time * run.config.data.sequence_length;
  const int threads = std::min(available_threads(), context().threads().size() * ranks);
  const auto shapes = training_matmuls(session.model().shape(), tokens);
  return std::max(gpus, 1) * matmul_rate(shapes, run.sharding.compute_dtype, threads, kRepeats);
}

}  // namespace

Rates rates_of(const ResolvedConfig& run, TrainingSession& session, Communicator& world) {
  Rates rates = {
      .peak = peak_matmul_rate(context().device(), world.size(), run.sharding.compute_dtype)};
  if (!run.config.train.measure_matmul_rate) return rates;
  // Barriers on both sides, so that no rank computes while rank 0 times products.
  world.barrier(communication_stream()).synchronize();
  if (world.rank() == 0) rates.matmul = measure(run, session, world.size());
  world.barrier(communication_stream()).synchronize();
  context().allocator().trim();
  return rates;
}

std::optional<double> share_of_rate(double rate, const std::optional<double>& baseline) {
  if (!baseline || !(rate <= *baseline)) return std::nullopt;
  return rate / *baseline;
}

}  // namespace tessera
