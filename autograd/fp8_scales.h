// Which numbers share a scale in 8-bit products (autograd/fp8.h).
#pragma once

#include "runtime/enum_names.h"

namespace tessera {

///   tensor   all of a tensor: the scale follows the tensor in earlier steps
///   blocks   128 along the depth of a product, of weights 128 x 128: the scale is that of the numbers themselves
enum class Fp8Scales { tensor, blocks };

template <>
inline constexpr EnumNames<Fp8Scales> kEnumNames<Fp8Scales> = {"scales", {"tensor", "blocks"}};

}  // namespace tessera
