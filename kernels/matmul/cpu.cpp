#include <cblas.h>

#include <algorithm>
#include <limits>

#include "kernels/cast/op.h"
#include "kernels/checks.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/matmul/blas_buffers.h"
#include "kernels/matmul/op.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera::cpu {
namespace {

// One product of the batch, c [M, N] = op(a) op(b). The leading dimensions are those in memory.
struct Problem {
  std::int64_t M = 0, N = 0, K = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;

  std::int64_t a_stride() const { return transpose_a ? M : K; }
  std::int64_t b_stride() const { return transpose_b ? K : N; }
};

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

/// Computes a block of c, `rows` x `columns`. `a`, `b` and `c` point to the block's first elements.
template <typename T>
void multiply_block(const Problem& p, int rows, int columns, const T* a, const T* b, T* c) {
  const auto k = static_cast<int>(p.K), ldb = static_cast<int>(p.b_stride());
  const T beta = p.accumulate ? 1 : 0;
  if (p.M == 1) {
    // Generating text multiplies one row at a time: c^T = op(b)^T a^T. gemv only reads b once, where
    // gemm would first copy it into tiles.
    if (p.transpose_b) return gemv(CblasNoTrans, columns, k, b, ldb, a, beta, c);
    return gemv(CblasTrans, k, columns, b, ldb, a, beta, c);
  }
  gemm(stored(p.transpose_a), stored(p.transpose_b), rows, columns, k, a,
       static_cast<int>(p.a_stride()), b, ldb, beta, c, static_cast<int>(p.N));
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

/// A function of the shape alone, so that the bits do not depend on the number of threads.
Grid cut(const Problem& p) {
  std::int64_t rows = chunk_count(p.M, kLargestSide), columns = chunk_count(p.N, kLargestSide);
  for (;;) {
    const std::int64_t height = part(p.M, rows), width = part(p.N, columns);
    const std::int64_t blocks = rows * columns * p.batch, half_area = height * width / 2;
    const bool few = blocks < kFewBlocks && half_area * p.K >= kAmpleWork;
    const bool ample = blocks < kManyBlocks && half_area >= kAmpleArea;
    if ((!few && !ample) || std::max(height, width) < 2 * kTile) {
      return {height, width, chunk_count(p.M, height), chunk_count(p.N, width)};
    }
    (height > width ? rows : columns) *= 2;
  }
}

/// Computes all blocks of all products of the batch on the rank's threads.
template <typename T>
void multiply(const Problem& p, const T* a, const T* b, T* c) {
  const Grid grid = cut(p);
  context().threads().run(p.batch * grid.blocks(), [&](std::int64_t i) {
    const std::int64_t index = i / grid.blocks(), block = i % grid.blocks();
    const std::int64_t row = block / grid.columns * grid.height;
    const std::int64_t column = block % grid.columns * grid.width;
    const auto rows = static_cast<int>(std::min(grid.height, p.M - row));
    const auto columns = static_cast<int>(std::min(grid.width, p.N - column));
    multiply_block(p, rows, columns, a + index * p.M * p.K + row * (p.transpose_a ? 1 : p.K),
                   b + index * p.K * p.N + column * (p.transpose_b ? p.K : 1),
                   c + index * p.M * p.N + row * p.N + column);
  });
}

// ---- 16-bit storage: multiply in f32

void add_rounded(Out c, const Tensor& product) {
  visit_floating(c.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      elementwise(
          c.numel(), c.data<T>(), [](float old, float more) { return old + more; }, c.data<T>(),
          product.data<float>());
    }
  });
}

Problem problem_of(const Tensor& c, const Tensor& a, Transpose transpose_a, Transpose transpose_b,
                   Accumulate accumulate) {
  const Problem p{.M = c.size(-2),
                  .N = c.size(-1),
                  .K = a.size(transpose_a == Transpose::yes ? -2 : -1),
                  .batch = c.rank() == 3 ? c.size(0) : 1,
                  .transpose_a = transpose_a == Transpose::yes,
                  .transpose_b = transpose_b == Transpose::yes,
                  .accumulate = accumulate == Accumulate::yes};
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  check(p.M <= kMost && p.N <= kMost && p.K <= kMost,
        "matmul: M = {}, N = {}, K = {}: OpenBLAS' sizes are 32-bit integers; split the product",
        p.M, p.N, p.K);
  return p;
}

}  // namespace

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate) {
  context().state<BlasBuffers>();
  Problem p = problem_of(c, a, transpose_a, transpose_b, accumulate);
  if (c.numel() == 0) return;
  if (p.K == 0) {
    if (!p.accumulate) c.zero();
    return;
  }
  const CategoryScope scope(Category::workspace);
  const Tensor wide_a = widened(a), wide_b = widened(b);
  if (c.dtype() == DType::f64) {
    multiply(p, wide_a.data<double>(), wide_b.data<double>(), c.data<double>());
  } else if (c.dtype() == DType::f32) {
    multiply(p, wide_a.data<float>(), wide_b.data<float>(), c.data<float>());
  } else {
    const Tensor product = Tensor::empty(c.shape(), DType::f32);
    p.accumulate = false;
    multiply(p, wide_a.data<float>(), wide_b.data<float>(), product.data<float>());
    accumulate == Accumulate::yes ? add_rounded(c, product) : cast(c, product);
  }
}

}  // namespace tessera::cpu
