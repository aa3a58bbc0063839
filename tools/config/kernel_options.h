// The kernels that a run's keys choose.
#pragma once

#include "kernels/matmul/cpu/isa.h"
#include "tools/config/config.h"

namespace tessera {

/// Sets the calling thread's rank to them: runtime.isa and the keys of `kernels`. Raises Error if
/// the CPU, whose best instruction set is `best`, lacks that of runtime.isa.
void choose_kernels(const Config& config, cpu::Isa best = cpu::best_isa());

}  // namespace tessera
