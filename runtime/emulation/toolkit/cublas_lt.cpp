// cuBLASLt on the CPU, stricter than the library.
//
// Calls that the library would answer slowly or wrongly are refused here: a pointer less aligned
// than was promised, an algorithm chosen for another problem, a workspace that is too small.
//
// As on a GPU, every problem has several algorithms. One forms the whole sum over k at once. One, for
// aligned matrices, forms two halves and keeps the first in the workspace. One adds the halves in
// the output's type; it is the first choice if the mask of reduction schemes allows it. The sum at once
// comes before that of two halves if the problem leaves multiprocessors to other kernels.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <cublasLt.h>
#include <emulated_device.h>

#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/emulation/toolkit/product.h"

struct cublasLtContext {};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace {

using tessera::emulation::Description;
using tessera::emulation::is_fp8;
using tessera::emulation::Layout;
using tessera::emulation::Matrices;
using tessera::emulation::Problem;
using tessera::emulation::size_of;
using tessera::emulation::Sum;
using tessera::emulation::workspace_bytes;

// ---- Valid problems

bool same(const Layout& x, const Layout& y) {
  return x.type == y.type && x.rows == y.rows && x.columns == y.columns &&
         x.leading_dimension == y.leading_dimension && x.batches == y.batches &&
         x.batch_stride == y.batch_stride;
}

/// Is there room for the columns, and are the matrices of a batch disjoint?
bool well_formed(const Layout& x) {
  if (x.rows < 1 || x.columns < 1 || x.batches < 1 || x.batches > 65535) return false;
  if (x.leading_dimension < x.rows) return false;
  const std::int64_t extent = (x.columns - 1) * x.leading_dimension + x.rows;
  return x.batches == 1 || x.batch_stride >= extent;
}

cublasStatus_t check_epilogue(const Problem& p) {
  const Description& description = p.description;
  if (description.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (p.d.batches > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool has_bias = description.bias != nullptr;
  const bool has_aux = description.aux != nullptr && description.aux_leading_dimension >= p.m() &&
                       description.aux_leading_dimension % 8 == 0;
  switch (description.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
      return has_bias ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return has_bias && has_aux ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    case CUBLASLT_EPILOGUE_DGELU:
      return has_aux ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

/// Scales of blocks: on 9.0 alone, for extents that are multiples of 4, and not squares in both matrices. ("cuBLAS",
/// 3.1.4.5)
bool suits_scales(const Problem& p) {
  const std::int32_t a = p.description.a_scale_mode, b = p.description.b_scale_mode;
  if (a == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F && a == b) return true;
  const auto is_blocks = [](std::int32_t mode) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
           mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  };
  const bool both_squares = a == b && a == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  return tessera::emulation::device_options().capability == 90 && is_blocks(a) && is_blocks(b) &&
         !both_squares && p.m() % 4 == 0 && p.n() % 4 == 0 && p.d.batches == 1;
}

/// Products of 8-bit numbers: TN alone, with rows of 16 bytes, and C and D of 16 or 32 bits.
cublasStatus_t check_fp8(const Problem& p) {
  const bool tn =
      p.description.transpose_a == CUBLAS_OP_T && p.description.transpose_b == CUBLAS_OP_N;
  const bool rows_of_16 = p.k() % 16 == 0 && p.m() % 16 == 0 && p.a.leading_dimension % 16 == 0 &&
                          p.b.leading_dimension % 16 == 0 &&
                          p.d.leading_dimension * size_of(p.d.type) % 16 == 0;
  const bool both_e5m2 = p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2;
  const bool plain = p.description.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                     p.description.epilogue == CUBLASLT_EPILOGUE_BIAS;
  const bool suits = is_fp8(p.b.type) && !is_fp8(p.d.type) && tn && rows_of_16 && !both_e5m2 &&
                     plain && suits_scales(p) && p.description.compute == CUBLAS_COMPUTE_32F;
  return suits ? check_epilogue(p) : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t check(const Problem& p, const Layout& c) {
  const std::int32_t multiprocessors = p.description.multiprocessors;
  if (multiprocessors < 0 || multiprocessors > tessera::emulation::kMultiprocessors) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool ta = p.description.transpose_a == CUBLAS_OP_T;
  const bool tb = p.description.transpose_b == CUBLAS_OP_T;
  for (const Layout* x : {&p.a, &p.b, &p.d}) {
    if (!well_formed(*x) || x->batches != p.d.batches) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool fits = (ta ? p.a.columns : p.a.rows) == p.m() &&
                    (tb ? p.b.rows : p.b.columns) == p.n() &&
                    (tb ? p.b.columns : p.b.rows) == p.k() && same(c, p.d);
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  if (is_fp8(p.a.type)) return check_fp8(p);
  if (p.a.type != p.b.type || (p.d.type != p.a.type && p.d.type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return check_epilogue(p);
}

// ---- Algorithms

struct Algorithm {
  Sum sum;
  std::uint64_t problem;       // the fingerprint of the problem that it was chosen for
  std::uint32_t alignment[4];  // promised
  std::uint64_t workspace_bytes;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

std::uint64_t fingerprint(const Problem& p) {
  std::uint64_t hash = 1;
  const auto mix = [&](auto value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15u;
  };
  for (const Layout* x : {&p.a, &p.b, &p.d}) {
    mix(x->type), mix(x->rows), mix(x->columns), mix(x->leading_dimension), mix(x->batches);
  }
  mix(p.description.compute), mix(p.description.transpose_a), mix(p.description.transpose_b);
  mix(p.description.epilogue), mix(p.description.multiprocessors);
  mix(p.description.a_scale_mode), mix(p.description.b_scale_mode);
  return hash;
}

std::vector<Algorithm> algorithms(const Problem& p, const cublasLtMatmulPreferenceOpaque_t& wish) {
  std::vector<Algorithm> found;
  const auto offer = [&](Sum sum) {
    Algorithm algorithm{sum, fingerprint(p), {}, workspace_bytes(p, sum)};
    std::copy_n(wish.alignment, 4, algorithm.alignment);
    found.push_back(algorithm);
  };
  constexpr std::uint32_t kInOutputType =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if (wish.reduction_schemes & kInOutputType && p.k() >= 2) {
    offer(Sum::in_output_type);
  }
  const bool aligned = std::all_of(std::begin(wish.alignment), std::end(wish.alignment),
                                   [](std::uint32_t bytes) { return bytes >= 16; });
  if (is_fp8(p.a.type) && !aligned) return found;
  const bool can_halve = wish.reduction_schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE &&
                         p.k() >= 16 && aligned && !p.description.has_blocks() &&
                         workspace_bytes(p, Sum::in_halves) <= wish.workspace_bytes;
  const bool has_all = p.description.multiprocessors == 0;
  if (can_halve && has_all) offer(Sum::in_halves);
  offer(Sum::whole);
  if (can_halve && !has_all) offer(Sum::in_halves);
  return found;
}

bool aligned(const void* pointer, std::uint32_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

/// Every matrix of the batch.
bool aligned(const void* pointer, const Layout& x, std::uint32_t alignment) {
  const std::size_t step = static_cast<std::size_t>(x.batch_stride) * size_of(x.type);
  return aligned(pointer, alignment) && (x.batches == 1 || step % alignment == 0);
}

/// Every operand once: the library's own kernels are not emulated.
tessera::emulation::Statistics work_of(const Problem& p, bool adds) {
  const auto count = [&](std::int64_t elements, cudaDataType_t type) {
    return static_cast<std::uint64_t>(elements * p.d.batches) * size_of(type);
  };
  const std::uint32_t epilogue = p.description.epilogue;
  const std::uint64_t d = count(p.m() * p.n(), p.d.type);
  std::uint64_t reads = count(p.m() * p.k(), p.a.type) + count(p.k() * p.n(), p.b.type);
  std::uint64_t writes = d;
  if (adds) reads += d;
  if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) writes += d;
  if (epilogue == CUBLASLT_EPILOGUE_DGELU) reads += d;
  tessera::emulation::Statistics work;
  work.matrix_flops = static_cast<std::uint64_t>(2 * p.m() * p.n() * p.k() * p.d.batches);
  work.reads = tessera::emulation::whole(reads);
  work.writes = tessera::emulation::whole(writes);
  return work;
}

template <typename T>
cublasStatus_t assign(T& to, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Object, typename... Fields>
cublasStatus_t create(Object** object, const Fields&... fields) {
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *object = new Object{fields...};
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Object>
cublasStatus_t destroy(Object* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    default:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
}

std::size_t cublasLtGetVersion() {
  return 130100;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return create(handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading_dimension) {
  return create(layout, type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
                leading_dimension);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return assign(layout->batches, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return assign(layout->batch_stride, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return create(description, compute);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(description->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(description->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(description->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(description->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(description->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(description->aux_leading_dimension, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return assign(description->multiprocessors, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return assign(description->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return assign(description->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return assign(description->a_scale_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return assign(description->b_scale_mode, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(preference->reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                    value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *returned = 0;
  const Problem problem{*description, *a, *b, *d};
  const cublasStatus_t status = check(problem, *c);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (const Algorithm& algorithm : algorithms(problem, *preference)) {
    if (*returned == requested) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {};
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = algorithm.workspace_bytes;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Problem problem{*description, *a, *b, *d};
  const cublasStatus_t status = check(problem, *c);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), algo, sizeof algorithm);
  if (algorithm.problem != fingerprint(problem)) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = algorithm.workspace_bytes;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const tessera::emulation::DeviceOptions options = tessera::emulation::device_options();
  const Problem problem{*description, *a_layout, *b_layout, *d_layout, options.narrow_sums};
  const cublasStatus_t status = check(problem, *c_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), algo, sizeof algorithm);
  const bool as_promised = aligned(a, *a_layout, algorithm.alignment[0]) &&
                           aligned(b, *b_layout, algorithm.alignment[1]) &&
                           aligned(c, *c_layout, algorithm.alignment[2]) &&
                           aligned(d, *d_layout, algorithm.alignment[3]);
  const bool has_workspace =
      algorithm.workspace_bytes == 0 ||
      (workspace != nullptr && aligned(workspace, 16) && bytes >= algorithm.workspace_bytes);
  const auto has_scales = [&](const float* scales) {
    return !description->has_blocks() || (scales != nullptr && aligned(scales, 16));
  };
  if (algorithm.problem != fingerprint(problem) || !as_promised || !has_workspace ||
      !has_scales(description->a_scale) || !has_scales(description->b_scale)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Matrices at{static_cast<const std::byte*>(a), static_cast<const std::byte*>(b),
                    static_cast<const std::byte*>(c), static_cast<std::byte*>(d)};
  const float alpha_now = *static_cast<const float*>(alpha),
              beta_now = *static_cast<const float*>(beta);
  const auto& [whole, in_halves] = options.product_delays;
  const std::chrono::milliseconds delay = algorithm.sum == Sum::in_halves ? in_halves : whole;
  const auto product = [=] {
    stream->delay += delay;
    tessera::emulation::Devices::get().count_crowded(stream->device,
                                                     problem.description.multiprocessors);
    multiply(problem, at, alpha_now, beta_now, algorithm.sum, workspace);
    const bool in_8_bits = size_of(problem.a.type) == 1;
    tessera::emulation::list_launch(
        {.kernel = in_8_bits ? "cublasLtMatmul, 8 bits" : "cublasLtMatmul",
         .work = work_of(problem, beta_now != 0.0f)});
  };
  const void* const used[] = {a,
                              b,
                              c,
                              d,
                              workspace,
                              description->bias,
                              description->aux,
                              description->a_scale,
                              description->b_scale};
  std::vector<std::uintptr_t> words;
  for (const void* address : used) words.push_back(reinterpret_cast<std::uintptr_t>(address));
  tessera::emulation::enqueue(stream, product, words);
  return CUBLAS_STATUS_SUCCESS;
}
