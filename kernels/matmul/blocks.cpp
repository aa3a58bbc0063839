#include "kernels/matmul/blocks.h"

#include <cblas.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/matmul/blas_buffers.h"
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

// ---- One block: a call of single-threaded OpenBLAS

CBLAS_TRANSPOSE stored(bool transposed) {
  return transposed ? CblasTrans : CblasNoTrans;
}

void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, const float* a, int lda,
          const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, op_a, op_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
}
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, const double* a, int lda,
          const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, op_a, op_b, m, n, k, 1.0, a, lda, b, ldb, beta, c, ldc);
}
void gemv(CBLAS_TRANSPOSE op, int m, int n, const float* a, int lda, const float* x, float beta,
          float* y) {
  cblas_sgemv(CblasRowMajor, op, m, n, 1.0f, a, lda, x, 1, beta, y, 1);
}
void gemv(CBLAS_TRANSPOSE op, int m, int n, const double* a, int lda, const double* x, double beta,
          double* y) {
  cblas_dgemv(CblasRowMajor, op, m, n, 1.0, a, lda, x, 1, beta, y, 1);
}

/// The leading dimensions in memory.
template <typename T>
std::int64_t a_stride(const Product<T>& p) {
  return p.transpose_a ? p.M : p.K;
}
template <typename T>
std::int64_t b_stride(const Product<T>& p) {
  return p.transpose_b ? p.K : p.N;
}

/// Computes a block of c, `rows` x `columns`. `a`, `b` and `c` point to the block's first elements.
template <typename T>
void multiply_block(const Product<T>& p, int rows, int columns, const T* a, const T* b, T* c) {
  const auto k = static_cast<int>(p.K), ldb = static_cast<int>(b_stride(p));
  const T beta = p.accumulate ? 1 : 0;
  if (p.M == 1) {
    // Generating text multiplies one row at a time: c^T = op(b)^T a^T. gemv only reads b once, where
    // gemm would first copy it into tiles.
    if (p.transpose_b) return gemv(CblasNoTrans, columns, k, b, ldb, a, beta, c);
    return gemv(CblasTrans, k, columns, b, ldb, a, beta, c);
  }
  gemm(stored(p.transpose_a), stored(p.transpose_b), rows, columns, k, a,
       static_cast<int>(a_stride(p)), b, ldb, beta, c, static_cast<int>(p.N));
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
// Blocks begin at multiples of it: whole tiles of OpenBLAS' micro-kernels.
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
  const auto rows = static_cast<int>(std::min(grid.height, p.M - row));
  const auto columns = static_cast<int>(std::min(grid.width, p.N - column));
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
