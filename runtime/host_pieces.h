// Filling a tensor from the host, wherever it lies, with a bounded amount of host memory.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/tensor.h"

namespace tessera {

/// Calls write(piece, begin) for stretches of the tensor's elements in order: `piece` is a tensor
/// in host memory, [n], for elements [begin, begin + n), which it must fill. Of a tensor in host
/// memory the only piece is the tensor itself. Returns when all has arrived.
void write_from_host(const Tensor& tensor,
                     const std::function<void(const Tensor& piece, std::int64_t begin)>& write);

}  // namespace tessera
