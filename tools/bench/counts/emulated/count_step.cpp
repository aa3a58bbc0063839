#include "tools/bench/counts/emulated/count_step.h"

#include <vector>

#include "runtime/context.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tools/config/kernel_options.h"
#include "tools/config/sharding_options.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

/// Tokens that all differ, as far as there are classes. The embedding's gradient has a sum for each id,
/// so that its counters are polynomials of the size.
BatchSource distinct_tokens(const DataConfig& data, std::int64_t classes) {
  const std::int64_t length = data.sequence_length;
  const auto load = [=](std::int64_t, std::int64_t first_row, std::int64_t rows) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = first_row * length; i < (first_row + rows) * length; ++i) {
      ids.push_back(static_cast<std::int32_t>(i % classes));
    }
    const Tensor tokens = Tensor::from(ids, {rows, length});
    return Batch{tokens, tokens};
  };
  return {load, [=](std::int64_t, std::int64_t, std::int64_t rows) { return rows * length; }};
}

/// Calls `use(session, batches)` on one rank.
template <typename Use>
void with_session(const ResolvedConfig& run, Use use) {
  run_ranks({.device = first_device(run.config.runtime), .threads = 0}, [&](Communicator& world) {
    choose_kernels(run.config);
    TrainingSession session(run, world);
    use(session, distinct_tokens(run.config.data, session.model().shape().vocab_size));
  });
}

}  // namespace

StepWork count_step(const ResolvedConfig& run) {
  StepWork work;
  with_session(run, [&](TrainingSession& session, const BatchSource& batches) {
    context().compute_stream().synchronize();
    emulation::start_launch_list();
    session.step(1, batches);
    communication_stream().synchronize();
    context().compute_stream().synchronize();
    work = summed(emulation::take_launch_list());
  });
  return work;
}

HostCallCounts count_host_calls(const ResolvedConfig& run) {
  emulation::DeviceOptions device = emulation::device_options();
  device.progress = emulation::Progress::lazy;  // nothing is done before the host waits for it
  const emulation::DeviceOptionsGuard guard(device);
  HostCallCounts counts{};
  with_session(run, [&](TrainingSession& session, const BatchSource& batches) {
    session.step(1, batches);
    session.step(2, batches);
    const HostCallCounts before = host_calls();
    session.step(3, batches);
    counts = host_calls() - before;
  });
  return counts;
}

}  // namespace tessera
