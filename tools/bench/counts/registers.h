// Registers of kernels, from the compiler.
#pragma once

#include <iosfwd>
#include <map>
#include <string>

namespace tessera {

/// Registers of a thread, by kernels' names as they are in the program (mangled). Reads the output
/// of `cuobjdump --dump-resource-usage`:
///
///    Function _ZN7tessera4cuda12_GLOBAL__N_113adamw_kernelE...:
///     REG:40 STACK:0 SHARED:0 LOCAL:0 ...
///
/// A kernel that was compiled for several architectures has the most of them.
std::map<std::string, int> read_registers(std::istream& usage);

/// The most of any instance of the kernel with this label (kernel_label.h); 0 if none is listed.
int registers_of(const std::map<std::string, int>& registers, const std::string& label);

}  // namespace tessera
