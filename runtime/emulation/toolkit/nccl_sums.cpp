#include "runtime/emulation/toolkit/nccl_sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "runtime/half.h"

namespace tessera::emulation {
namespace {

template <typename T>
T combined(T a, T b, ncclRedOp_t operation) {
  if constexpr (std::is_integral_v<T>) {
    return operation == ncclSum ? a + b : std::max(a, b);
  } else {
    const auto x = static_cast<float>(a), y = static_cast<float>(b);
    return T(operation == ncclSum ? x + y : std::fmax(x, y));
  }
}

template <typename T>
void write(void* to, const std::vector<std::byte*>& copies, std::size_t count,
           ncclRedOp_t operation) {
  const std::size_t ranks = copies.size();
  const std::size_t part = std::max<std::size_t>(1, count / ranks);
  const auto value = [&](std::size_t rank, std::size_t i) {
    return reinterpret_cast<const T*>(copies[rank % ranks])[i];
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i / part + 1;
    T sum = value(first, i);
    for (std::size_t k = 1; k < ranks; ++k) sum = combined(sum, value(first + k, i), operation);
    static_cast<T*>(to)[i] = sum;
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
      return 8;
    default:
      return 4;
  }
}

void write_sum(void* to, const std::vector<std::byte*>& copies, std::size_t count,
               ncclDataType_t type, ncclRedOp_t operation) {
  switch (type) {
    case ncclFloat32:
      return write<float>(to, copies, count, operation);
    case ncclUint32:
      return write<std::uint32_t>(to, copies, count, operation);
    case ncclFloat16:
      return write<float16>(to, copies, count, operation);
    case ncclBfloat16:
      return write<bfloat16>(to, copies, count, operation);
    default:
      return write<std::int64_t>(to, copies, count, operation);
  }
}

}  // namespace tessera::emulation
