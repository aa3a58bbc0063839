#include <algorithm>
#include <cstring>

#include "kernels/cpu/elementwise.h"
#include "kernels/nf4/format.h"
#include "kernels/nf4/op.h"

namespace tessera::cpu {
namespace {

float float_at(const std::uint8_t* bytes) {
  float value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// The row with this number in its matrix.
template <typename T>
void unpack_row(T* y, const std::uint8_t* packed, const Nf4Row& row, std::int64_t number) {
  const float mean = float_at(packed + row.mean);
  for (std::int64_t block = 0; block < row.blocks; ++block) {
    const float range = float_at(packed + row.ranges + 4 * row.group_of(number, block));
    const float scale = kNf4ScaleValues[packed[row.scales + block]] * range + mean;
    T values[16];
    for (std::size_t code = 0; code < 16; ++code) store_as(values[code], kNf4Values[code] * scale);
    const std::int64_t first = block * kNf4Block, end = std::min(first + kNf4Block, row.columns);
    for (std::int64_t i = first; i < end; ++i) {
      y[i] = values[packed[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    }
  }
}

}  // namespace

void nf4_unpack(Out y, const Tensor& packed) {
  const Nf4Row row(y.shape()[-1]);
  const std::int64_t rows = y.shape()[-2];
  visit_floating(y.dtype(), [&]<typename T>(T) {
    T* const values = y.data<T>();
    const auto* const bytes = packed.data<std::uint8_t>();
    const std::int64_t chunk = std::max<std::int64_t>(1, kElementwiseChunk / row.columns);
    parallel_for(y.numel() / row.columns, chunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        unpack_row(values + i * row.columns, bytes + i * row.bytes, row, i % rows);
      }
    });
  });
}

}  // namespace tessera::cpu
