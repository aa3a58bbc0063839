// A training step on the emulated GPU, counted.
#pragma once

#include "tools/bench/counts/emulated/step_work.h"
#include "tools/train/resolve.h"

namespace tessera {

/// The work of the first step of a run on random tokens, with one rank on the run's first device.
/// The counters of memory are zero unless the program has counted kernels (docs/emulation.md).
StepWork count_step(const ResolvedConfig& run);

}  // namespace tessera
