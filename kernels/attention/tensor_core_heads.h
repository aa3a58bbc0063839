// The heads for which attention has tensor cores.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/attention/backend.h"
#include "runtime/dtype.h"

namespace tessera {

/// The channels of the tiles of tessera's kernels for tensor cores, in bf16 and f16. A head of fewer
/// channels takes the next tile, with zeros in its other channels.
inline constexpr std::array<std::int64_t, 5> kTensorCoreTiles = {64, 80, 96, 128, 256};

/// The sizes of heads for which they are: multiples of 8, since rows begin at multiples of 16 bytes. The
/// tile of a smaller head would have more zeros than channels. On a GPU other sizes run as plain multiply-adds
/// in f32, many times slower.
inline constexpr std::int64_t kLeastTensorCoreHead = 40;
inline constexpr std::int64_t kMostTensorCoreHead = kTensorCoreTiles.back();

constexpr bool suits_tensor_cores(std::int64_t head_size) {
  return head_size % 8 == 0 && kLeastTensorCoreHead <= head_size &&
         head_size <= kMostTensorCoreHead;
}
constexpr bool fills_a_tile(std::int64_t head_size) {
  return std::find(kTensorCoreTiles.begin(), kTensorCoreTiles.end(), head_size) !=
         kTensorCoreTiles.end();
}

/// Whether heads of this size and dtype miss a GPU's tensor cores for their size.
constexpr bool misses_tensor_cores(AttentionBackend backend, DType dtype, std::int64_t head_size) {
  if (dtype == DType::f32) return false;
  if (backend == AttentionBackend::cudnn && head_size % 8 == 0 && head_size <= 128) return false;
  return !suits_tensor_cores(head_size);
}

}  // namespace tessera
