// Rows of 8x8 matrices in shared memory, 16 bytes each, for ldmatrix and stmatrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <source_location>

namespace tessera::emulation {

/// A turn reads (writes) one row in each group of 4 of the 32 banks. Returns the turns for rows[0] to
/// rows[7], each with its address. Rows at the same address take one turn.
template <typename Row>
unsigned turns_of(const Row* const* rows) {
  unsigned turns = 1;
  const auto address = [&](int i) { return reinterpret_cast<std::uintptr_t>(rows[i]->address); };
  for (int i = 0; i < 8; ++i) {
    unsigned turn = 1;
    for (int j = 0; j < i; ++j) {
      const bool first = std::none_of(rows, rows + j, [&](const Row* row) {
        return reinterpret_cast<std::uintptr_t>(row->address) == address(j);
      });
      if (first && address(j) != address(i) && address(j) / 16 % 8 == address(i) / 16 % 8) ++turn;
    }
    turns = std::max(turns, turn);
  }
  return turns;
}

/// Raises Failure where instruction `kind` takes no such row.
void check_matrix_row(const char* kind, const void* row, const std::source_location& site);

}  // namespace tessera::emulation
