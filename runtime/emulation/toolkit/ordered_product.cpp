#include "runtime/emulation/toolkit/ordered_product.h"

#include <algorithm>
#include <vector>

#include "runtime/emulation/tile_product.h"

namespace tessera::emulation {

TESSERA_VECTORS void ordered_product(float* c, const FloatMatrix& a, const FloatMatrix& b) {
  std::vector<float> panel(static_cast<std::size_t>(b.rows * kTileColumns));  // of b's columns
  for (std::int64_t column = 0; column < b.columns; column += kTileColumns) {
    const std::int64_t columns = std::min<std::int64_t>(kTileColumns, b.columns - column);
    for (std::int64_t k = 0; k < b.rows; ++k) {
      std::copy_n(b.data + k * b.stride + column, columns, panel.data() + k * kTileColumns);
    }
    // The last tiles may reach beyond the matrices. There they repeat the last row of a and keep old
    // columns of b, and those sums are not stored.
    for (std::int64_t row = 0; row < a.rows; row += kTileRows) {
      const float* rows[kTileRows];
      for (int i = 0; i < kTileRows; ++i) {
        rows[i] = a.data + std::min(row + i, a.rows - 1) * a.stride;
      }
      float tile[kTileRows][kTileColumns] = {};
      add_tile_product(tile[0], kTileColumns, rows, panel.data(), kTileColumns, b.rows);
      for (std::int64_t i = row; i < std::min(row + kTileRows, a.rows); ++i) {
        std::copy_n(tile[i - row], columns, c + i * b.columns + column);
      }
    }
  }
}

}  // namespace tessera::emulation
