// The product of two small tiles of floats, by the processor's vectors. Each element of the result is one
// sum in the order of k, and every operation is rounded on its own (-ffp-contract=off). So the bits of an
// element depend on its row and its column alone: not on its place in a matrix, on the matrix's size, or
// on the processor. BLAS libraries do not promise that.
#pragma once

#include <cstdint>

// A function with vectors, such as one that calls add_tile_product. The processor decides at the program's start which version runs.
#if defined(__x86_64__)
#define TESSERA_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define TESSERA_VECTORS
#endif

namespace tessera::emulation {

inline constexpr int kTileRows = 4, kTileColumns = 16;

/// c[i][j] += the sum over k of a[i][k] b[k][j], for kTileRows by kTileColumns elements of c and `depth` of
/// the sum. The rows of `b` and of `c` are `b_stride` and `c_stride` elements apart.
__attribute__((always_inline)) inline void add_tile_product(float* c, std::int64_t c_stride,
                                                            const float* const (&a)[kTileRows],
                                                            const float* b, std::int64_t b_stride,
                                                            std::int64_t depth) {
  using Vector = float __attribute__((vector_size(32)));
  using InMemory = float __attribute__((vector_size(32), aligned(4), may_alias));
  constexpr int kLanes = 8, kVectors = kTileColumns / kLanes;
  Vector sums[kTileRows][kVectors];  // in registers, since all loops over them are unrolled
  const auto for_each_sum = [&](auto f) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        f(sums[i][v], *reinterpret_cast<InMemory*>(c + i * c_stride + v * kLanes), i, v);
      }
    }
  };
  for_each_sum([](Vector& sum, InMemory& at, int, int) { sum = at; });
  for (std::int64_t k = 0; k < depth; ++k) {
    const auto* const right = reinterpret_cast<const InMemory*>(b + k * b_stride);
    for_each_sum([&](Vector& sum, InMemory&, int i, int v) { sum += a[i][k] * right[v]; });
  }
  for_each_sum([](const Vector& sum, InMemory& at, int, int) { at = sum; });
}

}  // namespace tessera::emulation
