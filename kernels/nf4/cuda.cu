// A thread unpacks the 8 elements of one word of codes.
//
// Traffic: 0.52 bytes of codes and scales read, the element written (2.5 bytes an element in 16 bits).
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/nf4/format.h"
#include "kernels/nf4/op.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

constexpr int kEach = 8;

/// By value, so that the tables are in constant memory.
struct Tables {
  float values[16];
  float scale_values[256];
};

Tables tables() {
  Tables tables{};
  for (std::size_t i = 0; i < 16; ++i) tables.values[i] = kNf4Values[i];
  for (std::size_t i = 0; i < 256; ++i) tables.scale_values[i] = kNf4ScaleValues[i];
  return tables;
}

/// Block (n, ...) works in row n; `rows` are those of a matrix.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(T* y, const std::uint8_t* packed, Nf4Row row, std::int64_t rows, bool in_vectors,
                  const __grid_constant__ Tables tables) {
  const std::int64_t n = blockIdx.x, first = gpu::item_of_row() * kEach;
  if (first >= row.columns) return;
  packed += n * row.bytes;
  y += n * row.columns;
  const std::int64_t block = first / kNf4Block;
  const std::int64_t group = (n % rows * row.blocks % kNf4Group + block) / kNf4Group;
  const float* const floats = reinterpret_cast<const float*>(packed + row.mean);
  // Rounded before the sum, as on the CPU.
  const float scale =
      gpu::product(tables.scale_values[packed[row.scales + block]], floats[1 + group]) + floats[0];
  const std::uint32_t codes = *reinterpret_cast<const std::uint32_t*>(packed + first / 2);
  float values[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    values[i] = tables.values[codes >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15u] * scale;
  }
  if (in_vectors) {
    gpu::store_all(y + first, values);
    return;
  }
  for (int i = 0; i < kEach && first + i < row.columns; ++i) gpu::store(y[first + i], values[i]);
}

}  // namespace

void nf4_unpack(Out y, const Tensor& packed) {
  const Nf4Row row(y.shape()[-1]);
  const auto [blocks, threads] =
      gpu::row_grid(y.numel() / row.columns, ceil_div(row.columns, kEach));
  gpu::visit(y.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const values = y.data<T>();
    const bool in_vectors = gpu::is_vectorizable(values, row.columns) && row.columns % kEach == 0;
    gpu::launch(unpack_kernel<T>, blocks, threads, 0, gpu::stream(), values,
                packed.data<std::uint8_t>(), row, y.shape()[-2], in_vectors, tables());
  });
}

}  // namespace tessera::cuda
