// The matrix product of the emulated cuBLASLt: its problem and its arithmetic.
#pragma once

#include <cublasLt.h>

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, columns, leading_dimension;
  std::int32_t batches = 1;
  std::int64_t batch_stride = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_leading_dimension = 0;
  std::int32_t multiprocessors = 0;                    // 0: those of the device
  const float *a_scale = nullptr, *b_scale = nullptr;  // 1 if null
  std::int32_t a_scale_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
               b_scale_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;

  bool has_blocks() const { return a_scale_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F; }
};

namespace tessera::emulation {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Description = cublasLtMatmulDescOpaque_t;

/// D [m, n] from op(A) [m, k] and op(B) [k, n]; C has D's layout.
struct Problem {
  Description description;
  Layout a, b, d;
  bool narrow_sums = false;  // of 8-bit numbers (narrow_sum.h)

  std::int64_t m() const { return d.rows; }
  std::int64_t n() const { return d.columns; }
  std::int64_t k() const { return description.transpose_a == CUBLAS_OP_T ? a.rows : a.columns; }
};

/// How the sum over k is formed: at once; in two halves, with the first half in the workspace; or in
/// two halves with the first rounded to the output's type, as reductions in that type do.
enum class Sum : std::uint64_t { whole, in_halves, in_output_type };

/// Bytes of workspace that this sum needs.
std::uint64_t workspace_bytes(const Problem& problem, Sum sum);

std::size_t size_of(cudaDataType_t type);
/// Is it a floating-point number of 8 bits?
bool is_fp8(cudaDataType_t type);

struct Matrices {
  const std::byte *a, *b, *c;
  std::byte* d;
};

/// D = alpha op(A) op(B) + beta C with the epilogue, for every matrix of the batch.
void multiply(const Problem& problem, const Matrices& at, float alpha, float beta, Sum sum,
              void* workspace);

}  // namespace tessera::emulation
