#include "runtime/dtype.h"

#include <array>

namespace tessera {

std::size_t size_of(DType dtype) {
  constexpr std::array<std::size_t, enum_names<DType>().size()> kSizes = {4, 2, 2, 8, 4,
                                                                          8, 1, 1, 1};
  return kSizes[static_cast<std::size_t>(dtype)];
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

}  // namespace tessera
