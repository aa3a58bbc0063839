// The heads for which attention has tensor cores.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/attention/backend.h"
#include "runtime/dtype.h"

namespace tessera {

/// The sizes of heads for which tessera's kernels have tensor cores, in bf16 and f16. On a GPU other
/// sizes run as plain multiply-adds in f32, many times slower.
inline constexpr std::array<std::int64_t, 4> kTensorCoreHeads = {64, 80, 96, 128};

/// Whether heads of this size and dtype miss a GPU's tensor cores for their size.
constexpr bool misses_tensor_cores(AttentionBackend backend, DType dtype, std::int64_t head_size) {
  if (dtype == DType::f32) return false;
  if (backend == AttentionBackend::cudnn && head_size % 8 == 0 && head_size <= 128) return false;
  return std::find(kTensorCoreHeads.begin(), kTensorCoreHeads.end(), head_size) ==
         kTensorCoreHeads.end();
}

}  // namespace tessera
