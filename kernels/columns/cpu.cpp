#include <algorithm>
#include <cstring>

#include "kernels/columns/op.h"
#include "kernels/cpu/elementwise.h"

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

}  // namespace tessera::cpu
