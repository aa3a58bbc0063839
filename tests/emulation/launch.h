// Launches on the emulator itself, without streams: the kernel has run when launch returns.
#pragma once

#include <tuple>

#include "kernels/cuda/language.h"

namespace tessera::test {

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments... arguments) {
  emulation::run({grid, block, shared_bytes}, kernel,
                 std::tuple<Parameters...>{static_cast<Parameters>(arguments)...});
}

inline constexpr unsigned kFullWarp = 0xffffffffu;

}  // namespace tessera::test
