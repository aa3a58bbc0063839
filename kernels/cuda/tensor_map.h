// The copy engine's description of a tensor: heads of 16-bit channels, read in tiles (sm_90). A list
// of matrices is heads of rows.
//
// A tile is a panel of 64 channels, 128 bytes, of `rows` tokens of one head. In shared memory its
// rows follow each other, and the 16-byte chunks within a row are swizzled: chunk c of row r lies at
// c ^ (r % 8). That is the layout in which wgmma reads without bank conflicts.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tessera::gpu {

/// Channels of a panel.
inline constexpr int kPanel = 64;

using TensorMap = CUtensorMap;

/// The first element of a tile.
struct TilePlace {
  int channel, token, head, batch;
};

/// A tensor [batch, tokens, heads, channels] of 16-bit elements. Strides are in bytes and multiples
/// of 16.
struct TensorShape {
  std::int64_t channels, tokens, heads, batch;
  std::int64_t token_stride, head_stride, batch_stride;
};

/// The map of tiles of `rows` tokens (at most 256). `data` is a multiple of 16 bytes. Tokens beyond the
/// tensor are read as zeros. Raises Error if the driver refuses.
TensorMap tensor_map(const void* data, const TensorShape& shape, int rows);

}  // namespace tessera::gpu
