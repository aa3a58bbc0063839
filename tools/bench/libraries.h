// The CPU libraries that benchmarks compare with, and the kernels that they run.
//
// A library chooses its kernels when it is loaded, from a list of CPUs. A CPU that is newer than the
// library is not in the list: on some with AVX-512, OpenBLAS 0.3.21 multiplies by its kernels for SSE3,
// at a fifth of its rate. So a benchmark starts again with a better choice, and prints the settings in force.
#pragma once

#include <string>
#include <string_view>

#include "kernels/matmul/cpu/isa.h"

namespace tessera {

/// The OPENBLAS_CORETYPE with kernels for a CPU of this level. Empty: OpenBLAS has no better ones than
/// those for every CPU.
std::string_view openblas_core_for(cpu::Isa isa);

/// The same, if OpenBLAS's kernels for `core` are made for a lower level. Else empty: it may keep them.
/// A core that this program does not know belongs to a newer OpenBLAS, which knows newer CPUs.
std::string_view better_openblas_core(std::string_view core, cpu::Isa isa);

struct LibrarySettings {
  int threads = 0;  // of OpenBLAS and oneDNN; 0: theirs
  std::string
      isa{};  // OpenBLAS and oneDNN have no instructions of higher levels; empty: the CPU's best
};

/// Call it before a program starts threads. Libraries read their settings when they are loaded, so for
/// new ones the program starts again, with these arguments. An OPENBLAS_CORETYPE in the environment stays,
/// unless `isa` is set.
void set_up_libraries(char** arguments, const LibrarySettings& settings = {});

/// "OpenBLAS 0.3.21 with SkylakeX kernels", the settings in force (OPENBLAS_...), and a remark where
/// the kernels are made for a lower level than `isa`.
std::string describe_openblas(cpu::Isa isa);

}  // namespace tessera
