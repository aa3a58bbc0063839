#include "tools/bench/counts/emulated/count_step.h"

#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/workload.h"
#include "tools/config/kernel_options.h"
#include "tools/config/sharding_options.h"
#include "tools/train/session.h"

namespace tessera {

StepWork count_step(const ResolvedConfig& run) {
  StepWork work;
  run_ranks({.device = first_device(run.config.runtime), .threads = 0}, [&](Communicator& world) {
    choose_kernels(run.config);
    TrainingSession session(run, world);
    context().compute_stream().synchronize();
    emulation::start_launch_list();
    session.step(1, random_tokens(run.config.data, session.model().shape().vocab_size));
    communication_stream().synchronize();
    context().compute_stream().synchronize();
    work = summed(emulation::take_launch_list());
  });
  return work;
}

}  // namespace tessera
