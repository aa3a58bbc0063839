#include "kernels/matmul/blocks.h"

#include <cblas.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/matmul/blas_buffers.h"
#include "kernels/matmul/in_order.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera::cpu {
namespace {

template <typename T>
void check_extents(const Product<T>& p) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  check(p.M <= kMost && p.N <= kMost && p.K <= kMost,
        "matmul: M = {}, N = {}, K = {}: OpenBLAS' sizes are 32-bit integers; split the product",
        p.M, p.N, p.K);
}

// ---- One block: a call of single-threaded OpenBLAS, or pieces in order

void gemm_of_transposed(bool transpose_b, int m, int n, int k, const float* a, int lda,
                        const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, CblasTrans, transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0f, a,
              lda, b, ldb, beta, c, ldc);
}
void gemm_of_transposed(bool transpose_b, int m, int n, int k, const double* a, int lda,
                        const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, CblasTrans, transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0, a,
              lda, b, ldb, beta, c, ldc);
}

template <typename T>
std::int64_t b_stride(const Product<T>& p) {
  return p.transpose_b ? p.K : p.N;
}

/// Computes a block of c, `rows` x `columns`. `a`, `b` and `c` point to the block's first elements.
template <typename T>
void multiply_in_order(const Product<T>& p, std::int64_t rows, std::int64_t columns, const T* a,
                       const T* b, T* c) {
  // Pieces of equal depth. Their borders depend on K alone, and so do an element's bits.
  const std::int64_t depth = chunk_count(p.K, chunk_count(p.K, kMostDepth));
  for (std::int64_t k = 0; k < p.K; k += depth) {
    multiply_in_order(Piece<T>{.rows = rows,
                               .columns = columns,
                               .depth = std::min(depth, p.K - k),
                               .accumulate = p.accumulate || k > 0,
                               .a = a + k,
                               .a_row = p.K,
                               .b = b + k * (p.transpose_b ? 1 : p.N),
                               .b_stride = b_stride(p),
                               .b_transposed = p.transpose_b,
                               .c = c,
                               .c_row = p.N});
  }
}

/// The same block by either way. A transposed `a` is a weight's gradient: its rows lie far apart in
/// memory, which is what OpenBLAS' copies are for.
template <typename T>
void multiply_block(const Product<T>& p, std::int64_t rows, std::int64_t columns, const T* a,
                    const T* b, T* c) {
  if (!p.transpose_a) return multiply_in_order(p, rows, columns, a, b, c);
  gemm_of_transposed(p.transpose_b, static_cast<int>(rows), static_cast<int>(columns),
                     static_cast<int>(p.K), a, static_cast<int>(p.M), b,
                     static_cast<int>(b_stride(p)), p.accumulate ? 1 : 0, c, static_cast<int>(p.N));
}

// ---- The cut into blocks

// Every block packs its own part of a and b, which costs in proportion to 1/height + 1/width. But
// every product should make work for many threads. Measured on GPT-2's shapes: blocks of 512 x 384
// run at 0.95 of an uncut product's rate, 256 x 192 at 0.91.
constexpr std::int64_t kLargestSide = 512;
// A product is cut further into this many blocks while they keep kAmpleArea elements, ...
constexpr std::int64_t kManyBlocks = 8;
constexpr std::int64_t kAmpleArea = 256 * 256;
// ... and a small one into this many while they keep this many multiplications (about 0.1 ms).
constexpr std::int64_t kFewBlocks = 4;
constexpr std::int64_t kAmpleWork = 6'000'000;
// Blocks begin at multiples of it: whole vectors, and whole tiles of OpenBLAS' micro-kernels.
constexpr std::int64_t kTile = 16;

struct Grid {
  std::int64_t height, width;  // of a block
  std::int64_t rows, columns;  // of blocks

  std::int64_t blocks() const { return rows * columns; }
};

std::int64_t part(std::int64_t extent, std::int64_t parts) {
  return chunk_count(chunk_count(extent, parts), kTile) * kTile;
}

template <typename T>
Grid cut(const Product<T>& p, std::int64_t parallel) {
  std::int64_t rows = chunk_count(p.M, kLargestSide), columns = chunk_count(p.N, kLargestSide);
  for (;;) {
    const std::int64_t height = part(p.M, rows), width = part(p.N, columns);
    const std::int64_t blocks = rows * columns * parallel, half_area = height * width / 2;
    const bool few = blocks < kFewBlocks && half_area * p.K >= kAmpleWork;
    const bool ample = blocks < kManyBlocks && half_area >= kAmpleArea;
    if ((!few && !ample) || std::max(height, width) < 2 * kTile) {
      return {height, width, chunk_count(p.M, height), chunk_count(p.N, width)};
    }
    (height > width ? rows : columns) *= 2;
  }
}

/// Computes block `block` of a product.
template <typename T>
void multiply_block(const Product<T>& p, const Grid& grid, std::int64_t block) {
  const std::int64_t row = block / grid.columns * grid.height;
  const std::int64_t column = block % grid.columns * grid.width;
  const std::int64_t rows = std::min(grid.height, p.M - row);
  const std::int64_t columns = std::min(grid.width, p.N - column);
  multiply_block(p, rows, columns, p.a + row * (p.transpose_a ? 1 : p.K),
                 p.b + column * (p.transpose_b ? p.K : 1), p.c + row * p.N + column);
}

template <typename T>
void multiply(std::span<const Product<T>> products, std::int64_t parallel) {
  context().state<BlasBuffers>();
  std::vector<Grid> grids;
  std::vector<std::int64_t> ends;  // where each product's blocks end if all lie end to end
  std::int64_t blocks = 0;
  for (const Product<T>& p : products) {
    check_extents(p);
    grids.push_back(cut(p, parallel));
    ends.push_back(blocks += grids.back().blocks());
  }
  context().threads().run(blocks, [&](std::int64_t i) {
    const auto index =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
    const std::int64_t first = ends[index] - grids[index].blocks();
    multiply_block(products[index], grids[index], i - first);
  });
}

}  // namespace

void multiply_all(std::span<const Product<float>> products, std::int64_t parallel) {
  multiply(products, parallel);
}
void multiply_all(std::span<const Product<double>> products, std::int64_t parallel) {
  multiply(products, parallel);
}

void narrow(Out c, const Tensor& product, Accumulate accumulate) {
  if (accumulate == Accumulate::no) return cast(c, product);
  visit_floating(c.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      elementwise(
          c.numel(), c.data<T>(), [](float old, float more) { return old + more; }, c.data<T>(),
          product.data<float>());
    }
  });
}

}  // namespace tessera::cpu
