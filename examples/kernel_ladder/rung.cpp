#include "examples/kernel_ladder/rung.h"

namespace tessera::kernel_ladder {

bool has(cpu::Isa isa) {
#if defined(__x86_64__)
  return cpu::best_isa() >= isa;
#else
  return isa < cpu::Isa::amx;
#endif
}

}  // namespace tessera::kernel_ladder
