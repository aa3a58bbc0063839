#include <algorithm>
#include <cstring>

#include "kernels/columns/op.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/numeric.h"

namespace tessera::cpu {

void copy_columns(Out y, const Columns& x) {
  if (y.numel() == 0) return;
  const std::size_t element = size_of(y.dtype());
  const auto bytes = [element](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * element;
  };
  const std::size_t from_row = bytes(x.tensor.size(1)), to_row = bytes(x.count);
  const std::byte* const from = x.tensor.raw() + bytes(x.first);
  std::byte* const to = y.raw();
  const std::int64_t rows = std::max<std::int64_t>(1, kElementwiseChunk / x.count);
  parallel_for(y.size(0), rows, [=](std::int64_t begin, std::int64_t end) {
    for (auto n = static_cast<std::size_t>(begin); n < static_cast<std::size_t>(end); ++n) {
      std::memcpy(to + n * to_row, from + n * from_row, to_row);
    }
  });
}

void set_columns(const Columns& y, const Tensor& x) {
  if (x.numel() == 0) return;
  const std::int64_t stride = y.tensor.size(1), count = y.count;
  const std::int64_t rows = std::max<std::int64_t>(1, kElementwiseChunk / count);
  const auto set = [&](auto* to, const auto* from) {
    parallel_for(x.size(0), rows, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        for (std::int64_t i = 0; i < count; ++i) {
          store(to[n * stride + i], load(from[n * count + i]));
        }
      }
    });
  };
  visit_floating(y.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const to = y.tensor.data<T>() + y.first;
    if (x.dtype() == y.tensor.dtype()) {
      set(to, x.data<T>());
    } else {
      set(to, x.data<float>());
    }
  });
}

}  // namespace tessera::cpu
