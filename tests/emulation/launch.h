// Launches without streams: the kernel has run when launch returns.
#pragma once

#include <tuple>

#include "kernels/cuda/language.h"

namespace tessera::test {

/// In clusters of so many blocks. The kernel has asked for the shared memory that it gets.
template <typename... Parameters, typename... Arguments>
void launch_clusters(unsigned cluster, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                     std::size_t shared_bytes, Arguments... arguments) {
  emulation::run({grid, block, shared_bytes, cluster, {.dynamic_bytes = shared_bytes}}, kernel,
                 std::tuple<Parameters...>{static_cast<Parameters>(arguments)...});
}
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments... arguments) {
  launch_clusters(1, kernel, grid, block, shared_bytes, arguments...);
}

inline constexpr unsigned kFullWarp = 0xffffffffu;

}  // namespace tessera::test
