// Many normal numbers of a RandomStream at once.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/random.h"

namespace tessera {

/// values[i] = random.normal(first + i), to the bit. Elements that share words share their logarithm.
void fill_normal(std::span<float> values, const RandomStream& random, std::uint64_t first);

}  // namespace tessera
