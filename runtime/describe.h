// describe(tensor) in messages: check(ok, "x is {}", describe(x)) prints "x is f32 [2, 3]".
//
// The text is made only when a check fails, so a check that passes costs nothing. Host code only.
#pragma once

#include <fmt/format.h>

#include "runtime/tensor.h"

template <>
struct fmt::formatter<tessera::Description> : fmt::formatter<std::string_view> {
  auto format(const tessera::Description& description, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(tessera::to_string(description.tensor),
                                                    context);
  }
};
