// One warp's operands of a wgmma as matrices of f32, and their product.
//
// A kernel that multiplies matrices spends much of its time here. So the loops have vectors, and are
// compiled for AVX2 as well as for every x86-64 (tile_product.h). The bits are the same.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/e4m3_pair.h"
#include "runtime/emulation/device/warpgroup.h"

namespace tessera::emulation {

inline constexpr int kWarpgroupRows = 16;      // of one warp
inline constexpr int kWarpgroupDepth = 16;     // elements
inline constexpr int kWarpgroupColumns = 256;  // the most
inline constexpr int kPanelRowBytes = 128;
inline constexpr int kPanelColumns = kPanelRowBytes / 2;

/// The values of an element along the depth: a pair has two.
template <typename T>
inline constexpr int kValuesOf = std::is_same_v<T, E4m3Pair> ? 2 : 1;

/// A matrix's elements as bits, then as values.
struct LeftMatrix {
  alignas(32) std::uint16_t bits[kWarpgroupRows][kWarpgroupDepth];
  alignas(32) float values[kWarpgroupRows][2 * kWarpgroupDepth];
};
struct RightMatrix {
  alignas(32) std::uint16_t bits[kWarpgroupDepth][kWarpgroupColumns];
  alignas(32) float values[2 * kWarpgroupDepth][kWarpgroupColumns];
};

/// The beginning of the panel's first row; the operand's may be within it.
inline const unsigned char* first_row(const Panel& panel) {
  return panel.start - reinterpret_cast<std::uintptr_t>(panel.start) % kPanelRowBytes;
}

/// A warp's 16 of the group's 64 rows, where the panel's rows are rows of A, and where they are columns.
void read_left_rows(LeftMatrix& a, const Panel& panel, int warp);
void read_left_columns(LeftMatrix& a, const Panel& panel, int warp);
/// The same for B: the panels' rows are rows of B, or columns.
void read_right_rows(RightMatrix& b, const Panel& panel, int columns);
void read_right_columns(RightMatrix& b, const Panel& panel, int columns);

/// Sets the values from the bits.
template <typename T>
void convert(LeftMatrix& a);
template <typename T>
void convert(RightMatrix& b, int columns);

/// c [16, columns] += a b, of elements T.
template <typename T>
void add_product(float* c, const LeftMatrix& a, const RightMatrix& b, int columns);

}  // namespace tessera::emulation
