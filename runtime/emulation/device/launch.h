// Launches: the blocks of a grid, or its clusters, run one after another on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <vector_types.h>

#include "runtime/emulation/device/architecture.h"
#include "runtime/emulation/device/emulator.h"

namespace tessera::emulation {

struct SharedMemoryLimits {
  /// Dynamic shared memory that the kernel asked for with cudaFuncSetAttribute. Without a value the
  /// limit is 48 KiB minus the kernel's static shared memory.
  std::optional<std::size_t> dynamic_bytes;
  /// Static and dynamic together: the architecture's limit.
  std::size_t block_bytes = kMostSharedBytes;
};

struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // blocks of a cluster, neighbours along x
  SharedMemoryLimits limits;
  Schedule schedule = emulation::schedule();
  const void* kernel = nullptr;  // its address, for the record of launches
  const char* file = "";         // the source file of the launch, likewise
};

/// Raises Failure if the GPU would refuse the launch.
void check(const Launch& launch);
/// Raises Failure if the `bytes` bytes of a kernel's parameter hold an address on the calling
/// thread's stack: the kernel would read host memory that is gone when it runs.
void check_parameter(int number, const void* parameter, std::size_t bytes);
/// Appends the whole words of a kernel's parameter.
void add_words(std::vector<std::uintptr_t>& words, const void* parameter, std::size_t bytes);

/// Every thread of the grid calls body(arguments). Launches from several host threads take turns.
/// Raises Failure.
void run(const Launch& launch, void (*body)(const void*), const void* arguments);

/// The same, without the parameter's padding, which may hold old bytes of the stack.
template <typename Parameter>
void check_parameter(int number, Parameter value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
  check_parameter(number, &value, sizeof value);
}

template <typename... Parameters>
void check_parameters(const std::tuple<Parameters...>& values) {
  int number = 0;
  std::apply([&](const Parameters&... each) { (check_parameter(++number, each), ...); }, values);
}

/// The words of the parameters, in which addresses may lie.
template <typename... Parameters>
std::vector<std::uintptr_t> words_of(const std::tuple<Parameters...>& values) {
  std::vector<std::uintptr_t> words;
  std::apply([&](const Parameters&... each) { (add_words(words, &each, sizeof each), ...); },
             values);
  return words;
}

/// Runs kernel(values...) to its end. Raises Failure.
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
  Launch recorded = launch;
  recorded.kernel = reinterpret_cast<const void*>(kernel);
  run(recorded, body, &call);
}

}  // namespace tessera::emulation
