#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include "runtime/check.h"
#include "runtime/cuda/status.h"

namespace tessera::gpu {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function: programs are not linked with the driver, which machines without a GPU lack.
Encode encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  cuda::check_status(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                      cudaEnableDefault, &result),
                     "cudaGetDriverEntryPointByVersion");
  check(
      result == cudaDriverEntryPointSuccess,
      "the NVIDIA driver has no cuTensorMapEncodeTiled; kernels on this GPU need a driver for CUDA "
      "12 or later");
  return reinterpret_cast<Encode>(function);
}

}  // namespace

TensorMap tensor_map(const void* data, const TensorShape& shape, int rows) {
  static const Encode encode = encoder();
  const auto size = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  const cuuint64_t extents[] = {size(shape.channels), size(shape.tokens), size(shape.heads),
                                size(shape.batch)};
  const cuuint64_t strides[] = {size(shape.token_stride), size(shape.head_stride),
                                size(shape.batch_stride)};
  const cuuint32_t box[] = {kPanel, static_cast<cuuint32_t>(rows), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  TensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(data), extents, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS,
        "cuTensorMapEncodeTiled refuses [{}, {}, {}, {}] with strides of {}, {} and {} bytes: {}",
        shape.batch, shape.tokens, shape.heads, shape.channels, shape.batch_stride,
        shape.token_stride, shape.head_stride, static_cast<int>(result));
  return map;
}

}  // namespace tessera::gpu
