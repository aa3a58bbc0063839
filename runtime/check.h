// Raising errors with a formatted message. Host code only (device code cannot include fmt).
#pragma once

#include <fmt/format.h>

#include <utility>

#include "runtime/error.h"

namespace tessera {

/// Raises an Error with the formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

/// Raises an Error with the formatted message unless `condition` holds.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) fail(message, std::forward<Args>(args)...);
}

}  // namespace tessera
