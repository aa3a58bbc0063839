// A rung of any ladder.
#pragma once

#include "kernels/matmul/cpu/isa.h"

namespace tessera::kernel_ladder {

/// A rung: a function that solves a problem of its ladder.
template <typename Problem>
struct Rung {
  const char* name;
  void (*run)(const Problem&);
  /// The instructions that the file is compiled for, on x86-64.
  cpu::Isa isa = cpu::Isa::avx2;
  bool uses_threads = false;
};

/// Does this CPU have the instructions? CPUs that are not x86-64 have those of all f32 rungs.
bool has(cpu::Isa isa);

}  // namespace tessera::kernel_ladder
