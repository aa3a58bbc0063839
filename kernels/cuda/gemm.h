// Matrix products by cuBLASLt, with epilogues: steps that follow the product before it is stored.
//
// All in row-major terms: c [M, N] (+)= op(a) [M, K] op(b) [K, N]. The library counts in columns:
// read column by column our matrices are their transposes, and it computes c^T = op(b)^T op(a)^T.
//
// The library is asked once per shape for its algorithms, and the rank keeps one (MatmulOptions in
// kernels/matmul/options.h says how it is chosen). Some algorithms split a sum over k. Only those
// are asked for that add the parts in f32 and in a fixed order: equal calls give equal bits.
//
// Of 8-bit matrices (e4m3, e5m2) the library multiplies a [M, K] by the transpose of b [N, K] alone, with K and N
// multiples of 16, all matrices aligned to 16 bytes, and not two of e5m2. Architecture 9.0 takes scales of blocks, if M is
// a multiple of 4: of vectors, or of squares for one of the two matrices.
// Source: "cuBLAS", 3.1.4.5, "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types".
#pragma once

#include <cstdint>

#include "kernels/fp8/op.h"
#include "runtime/dtype.h"
#include "runtime/enum_names.h"

namespace tessera::cuda {

/// Bytes for the library's partial sums, for every stream on which a rank multiplies. Charged to
/// `workspace` from the first product to the end of the rank's context.
inline constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;

enum class Epilogue {
  none,
  bias,          // c = product + bias [N] in every row
  bias_gelu,     // aux [M, N] = product + bias; c = gelu(aux before it is rounded)
  gelu_backward  // c = product * gelu'(aux [M, N])
};

}  // namespace tessera::cuda

namespace tessera {
template <>
inline constexpr EnumNames<cuda::Epilogue> kEnumNames<cuda::Epilogue> = {
    "epilogue", {"none", "bias", "bias_gelu", "gelu_backward"}};
}  // namespace tessera

namespace tessera::cuda {

/// A kind of product: everything but where the matrices are.
struct Gemm {
  std::int64_t M = 0, N = 0, K = 0;  // at least 1
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  DType in = DType::f32;  // of a and b
  DType in_b = in;        // of b, where it is another 8-bit format
  Fp8Blocks a_blocks = Fp8Blocks::tensor, b_blocks = Fp8Blocks::tensor;  // of 8-bit matrices
  DType out = DType::f32;  // of c, bias and aux: that of a and b (bf16 for 8 bits), or f32
  /// Elements from one stored row to the next; 0 where rows follow each other without gaps.
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  std::int64_t batch = 1;  // matrices without gaps between them; only with Epilogue::none
  Epilogue epilogue = Epilogue::none;
};

struct GemmMatrices {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  void* bias = nullptr;
  void* aux = nullptr;
  /// Added to the product if it accumulates, stored as c is; null for c itself.
  const void* addend = nullptr;
  /// Factors of 8-bit matrices in f32, on the device: as fp8_scales_shape() has those of a [M, K] and b [N, K].
  const float *a_scale = nullptr, *b_scale = nullptr;
};

/// Multiprocessors that NCCL's kernels may hold while products of the calling thread's rank run. cuBLASLt
/// is told the number of the others, and chooses its algorithms for them. 0: products have the whole GPU.
int& held_multiprocessors();

/// Queues the product on the current stream. False, and nothing is queued, if the library has no
/// algorithm for it: a caller that asked for an epilogue can then take several steps.
bool try_gemm(const Gemm& gemm, const GemmMatrices& at);

/// Queues the product on the current stream. Raises Error if the library has no algorithm for it.
void gemm(const Gemm& gemm, const GemmMatrices& at);

}  // namespace tessera::cuda
