// The micro-kernel of tile instructions: 32 x 32 elements of c in four tiles.
//
//                     b: 32 deep, 2 x 16 columns
//                        +-------+-------+
//                        | tile 6| tile 7|   16 rows of 16 pairs
//                        +-------+-------+
//     a: 2 x 16 rows
//        +-------+       +-------+-------+
//        | tile 4|       | tile 0| tile 1|   16 x 16 floats
//        +-------+       +-------+-------+
//        | tile 5|       | tile 2| tile 3|
//        +-------+       +-------+-------+
//        16 rows of 32
//
// A product of tiles, TDPBF16PS, forms for every element one chain over the even depths and one over
// the odd ones, adds the two, and adds their sum to c (Intel's Software Developer's Manual). So a
// piece begins with c's elements, and its bits do not depend on where the sum is cut, as long as it
// is at a multiple of 32.
//
// Fewer rows of c make shorter tiles, and those take less time. So a's rows may be the factor's own.
//
// Tiles names the instructions: those of the CPU (amx.cpp), or a stand-in in software
// (software_tiles.cpp), which runs everything else of this path on any CPU.
#pragma once

#include "kernels/matmul/cpu/panels.h"

namespace tessera::cpu {
namespace {

inline constexpr int kTileSide = 16;   // rows of a tile, and floats of a row
inline constexpr int kTileDepth = 32;  // of a tile of a or b

/// How many rows tile `index` has, if c has so many in all. A tile without rows is not allowed, so one
/// that is not used has one.
constexpr std::int64_t rows_of_tile(int index, std::int64_t rows) {
  if (index >= 6) return kTileSide;  // b's
  const bool lower = index == 2 || index == 3 || index == 5;
  return std::clamp<std::int64_t>(lower ? rows - kTileSide : rows, 1, kTileSide);
}

/// a's panel: 32 rows, each with the whole depth of the piece.
template <typename Source>
void pack_tile_rows(void* to, std::int64_t panel_bytes, const Factor& from, std::int64_t count,
                    std::int64_t depth) {
  constexpr std::int64_t kRows = 2 * kTileSide;
  const std::int64_t whole = (depth + kTileDepth - 1) / kTileDepth * kTileDepth;
  const auto* const data = static_cast<const Source*>(from.data);
  for (std::int64_t i = 0; i < (count + kRows - 1) / kRows * kRows; ++i) {
    auto* const row = reinterpret_cast<Source*>(static_cast<char*>(to) + i / kRows * panel_bytes) +
                      i % kRows * whole;
    const std::int64_t filled = i < count ? depth : 0;
    if (from.depth_contiguous) {
      if (filled > 0) std::copy_n(data + i * from.stride, filled, row);
      std::memset(static_cast<void*>(row + filled), 0,
                  sizeof(Source) * static_cast<std::size_t>(whole - filled));
    }
  }
  if (from.depth_contiguous) return;
  // Squares of 16 rows by 16 pairs of depths: pairs are formed as for b, and then transposed.
  for (std::int64_t i = 0; i < (count + kRows - 1) / kRows * kRows; i += kTileSide) {
    auto* const rows = reinterpret_cast<Source*>(static_cast<char*>(to) + i / kRows * panel_bytes) +
                       i % kRows * whole;
    for (std::int64_t k = 0; k < whole; k += kTileDepth) {
      Pair pairs[kTileSide * kTileSide];
      if (k + kTileDepth > depth || i + kTileSide > count) std::memset(pairs, 0, sizeof(pairs));
      if (i < count) {
        pack_rows<Pair, kTileSide>(reinterpret_cast<char*>(pairs), 0, data + k * from.stride + i,
                                   from.stride, std::min<std::int64_t>(kTileSide, count - i),
                                   std::min<std::int64_t>(kTileDepth, depth - k));
      }
      typename VectorOf<Pair, kTileSide>::type square[kTileSide];
      std::memcpy(square, pairs, sizeof(square));
      transpose(square);
      for (int row = 0; row < kTileSide; ++row) {
        std::memcpy(static_cast<void*>(rows + row * whole + k), &square[row], sizeof(square[row]));
      }
    }
  }
}

/// With `kLower` there are more than 16 rows. a_row is in bytes.
template <typename Tiles, bool kLower>
TESSERA_INLINE void multiply_rows(const char* a, std::int64_t a_row, const char* b,
                                  std::int64_t depth, float* c, std::int64_t c_row,
                                  bool accumulate) {
  constexpr std::int64_t kRowBytes = 64, kPanelRow = 2 * kRowBytes;
  const std::int64_t row_bytes = c_row * static_cast<std::int64_t>(sizeof(float));
  float* const below = c + kTileSide * c_row;
  if (accumulate) {
    Tiles::template load<0>(c, row_bytes);
    Tiles::template load<1>(c + kTileSide, row_bytes);
    if constexpr (kLower) {
      Tiles::template load<2>(below, row_bytes);
      Tiles::template load<3>(below + kTileSide, row_bytes);
    }
  } else {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    if constexpr (kLower) {
      Tiles::template zero<2>();
      Tiles::template zero<3>();
    }
  }
  const char* const a_below = a + kTileSide * a_row;
  for (std::int64_t k = 0; k < depth; k += kTileDepth) {
    Tiles::template load<6>(b + k / 2 * kPanelRow, kPanelRow);
    Tiles::template load<4>(a + k * 2, a_row);
    Tiles::template multiply<0, 4, 6>();
    Tiles::template load<7>(b + k / 2 * kPanelRow + kRowBytes, kPanelRow);
    Tiles::template multiply<1, 4, 7>();
    if constexpr (kLower) {
      Tiles::template load<5>(a_below + k * 2, a_row);
      Tiles::template multiply<2, 5, 6>();
      Tiles::template multiply<3, 5, 7>();
    }
  }
  Tiles::template store<0>(c, row_bytes);
  Tiles::template store<1>(c + kTileSide, row_bytes);
  if constexpr (kLower) {
    Tiles::template store<2>(below, row_bytes);
    Tiles::template store<3>(below + kTileSide, row_bytes);
  }
}

template <typename Tiles>
void multiply_tiles(const Tile& tile) {
  constexpr std::int64_t kSide = 2 * kTileSide;
  const std::int64_t depth = (tile.depth + kTileDepth - 1) / kTileDepth * kTileDepth;
  const std::int64_t a_row = 2 * (tile.a_row == 0 ? depth : tile.a_row);
  const auto* const a = static_cast<const char*>(tile.a);
  const auto* const b = static_cast<const char*>(tile.b);
  const auto multiply = [&](float* c, std::int64_t c_row) {
    if (tile.rows > kTileSide) {
      multiply_rows<Tiles, true>(a, a_row, b, depth, c, c_row, tile.accumulate);
    } else {
      multiply_rows<Tiles, false>(a, a_row, b, depth, c, c_row, tile.accumulate);
    }
  };
  Tiles::set_rows(tile.rows);
  auto* const c = static_cast<float*>(tile.c);
  if (tile.columns == kSide) return multiply(c, tile.c_row);
  alignas(64) float sums[kSide * kSide] = {};
  const auto bytes = sizeof(float) * static_cast<std::size_t>(tile.columns);
  for (std::int64_t i = 0; tile.accumulate && i < tile.rows; ++i) {
    std::memcpy(sums + i * kSide, c + i * tile.c_row, bytes);
  }
  multiply(sums, kSide);
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    std::memcpy(c + i * tile.c_row, sums + i * kSide, bytes);
  }
}

template <typename Tiles>
inline constexpr Engine kTiles{.rows = 2 * kTileSide,
                               .columns = 2 * kTileSide,
                               .depth_step = kTileDepth,
                               .most_depth = 512,
                               .element_size = 2,
                               .reads_a = true,
                               .pack_a = pack_tile_rows<bfloat16>,
                               .pack_b = pack<Pair, 2 * kTileSide, kTileSide, bfloat16, kTileDepth>,
                               .multiply = multiply_tiles<Tiles>,
                               .end = Tiles::end};

}  // namespace
}  // namespace tessera::cpu
