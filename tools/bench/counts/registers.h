// Registers of kernels, from the compiler.
#pragma once

#include <iosfwd>
#include <map>
#include <string>

namespace tessera {

/// Registers of a thread on sm_90, by operation (kernel_label.h) and kernel_instance().
using Registers = std::map<std::string, std::map<std::string, int>>;

/// A kernel's full name without its parameters: "void tessera::cuda::(anonymous
/// namespace)::forward_kernel<8, tessera::bfloat16>".
std::string kernel_instance(const std::string& name);

/// Reads the output of tools/bench/kernel_registers.sh, which has many lines besides these:
///
///    File /CMakeFiles/tessera_kernels.dir/kernels/adamw/cuda.cu.o
///    arch = sm_90a
///     Function _ZN7tessera4cuda12_GLOBAL__N_113adamw_kernelE...:
///      REG:40 STACK:0 SHARED:0 LOCAL:0 ...
Registers read_registers(std::istream& usage);

/// Those of an instance that is launched by `operation`. The headers of kernels/cuda launch kernels for
/// many operations: theirs ("cuda", "elementwise") are looked for in all. 0 if there is no such instance.
int registers_of(const Registers& registers, const std::string& operation,
                 const std::string& instance);

}  // namespace tessera
