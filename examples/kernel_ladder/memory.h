// The bounds of kernels that compute little: a copy, and a pass that only reads.
#pragma once

#include <string>

#include "examples/kernel_ladder/table.h"
#include "runtime/tensor.h"

namespace tessera::kernel_ladder {

/// "copy, 1 thread" or "read, 2 threads": the name of a line of the table.
std::string memory_name(const std::string& access, int threads);

/// The line "copy": `threads` threads copy a part of `from` each to `to`, of the same size.
Line copy_line(const Tensor& to, const Tensor& from, int threads);

/// The line "read": `threads` threads read a part of `from` each, and add its bits as integers.
Line read_line(const Tensor& from, int threads);

}  // namespace tessera::kernel_ladder
