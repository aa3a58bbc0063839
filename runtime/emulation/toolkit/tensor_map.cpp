// cuTensorMapEncodeTiled, with the checks of the CUDA driver's manual, "Tensor Map Object Management".
#include <cuda.h>

#include <cstring>

#include "runtime/emulation/device/tile_copy.h"

using tessera::emulation::TileMap;

static_assert(sizeof(TileMap) <= sizeof(CUtensorMap));

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* data, const cuuint64_t* extents, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  if (map == nullptr || reinterpret_cast<std::uintptr_t>(map) % 64 != 0 || rank != 4 ||
      type != CU_TENSOR_MAP_DATA_TYPE_UINT16 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      swizzle != CU_TENSOR_MAP_SWIZZLE_128B || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
      reinterpret_cast<std::uintptr_t>(data) % 16 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TileMap tiles{};
  tiles.data = static_cast<const unsigned char*>(data);
  for (int i = 0; i < 4; ++i) {
    if (extents[i] == 0 || extents[i] > 1ull << 32 || element_strides[i] != 1 || box[i] == 0 ||
        box[i] > 256) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    tiles.extents[i] = static_cast<std::int64_t>(extents[i]);
    if (i == 3) break;
    if (strides[i] == 0 || strides[i] % 16 != 0 || strides[i] >= 1ull << 40) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    tiles.strides[i] = static_cast<std::int64_t>(strides[i]);
  }
  if (box[0] != TileMap::kChannels || box[2] != 1 || box[3] != 1) return CUDA_ERROR_INVALID_VALUE;
  tiles.rows = static_cast<int>(box[1]);
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &tiles, sizeof tiles);
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
