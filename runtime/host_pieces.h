// Fills a tensor on any device from the host, piece by piece.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/tensor.h"

namespace tessera {

/// Calls write(piece, begin) for consecutive pieces of the tensor. `piece` is a tensor [n] in host
/// memory: `write` must fill it with elements [begin, begin + n). A tensor in host memory is its own
/// only piece. Returns when all elements are in the tensor.
void write_from_host(const Tensor& tensor,
                     const std::function<void(const Tensor& piece, std::int64_t begin)>& write);

}  // namespace tessera
