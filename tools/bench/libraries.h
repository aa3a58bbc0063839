// The kernels of the CPU libraries that benchmarks compare with.
#pragma once

#include <string>

#include "kernels/matmul/cpu/isa.h"

namespace tessera {

/// OpenBLAS and oneDNN use no instructions of higher levels than `isa`. Call it before their first product.
void limit_libraries(cpu::Isa isa);

/// "OpenBLAS 0.3.21 with SkylakeX kernels", the settings in force (OPENBLAS_...), and a remark where
/// the kernels are made for a lower level than `isa`.
std::string describe_openblas(cpu::Isa isa);

}  // namespace tessera
