// Launches: a grid of blocks, one after another, on the calling thread.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <vector_types.h>

#include "runtime/emulation/device/emulator.h"

namespace tessera::emulation {

struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic
  Schedule schedule = emulation::schedule();
};

/// Raises Failure if no GPU of sm_90 would take it.
void check(const Launch& launch);

/// Has every thread of the grid call body(arguments). Launches of several threads take turns.
/// Raises Failure.
void run(const Launch& launch, void (*body)(const void*), const void* arguments);

/// Runs kernel(values...), to its end. Raises Failure.
template <typename... Parameters>
void run(const Launch& launch, void (*kernel)(Parameters...),
         const std::tuple<Parameters...>& values) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "copied bit by bit to the GPU");
  static_assert((sizeof(Parameters) + ... + 0) <= 32764, "more than sm_70 and later can pass");
  using Call = std::pair<void (*)(Parameters...), const std::tuple<Parameters...>*>;
  const Call call{kernel, &values};
  const auto body = [](const void* erased) {
    const Call& thread = *static_cast<const Call*>(erased);
    std::apply(thread.first, *thread.second);
  };
  run(launch, body, &call);
}

}  // namespace tessera::emulation
