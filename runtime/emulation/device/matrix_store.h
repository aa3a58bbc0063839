// stmatrix: a warp stores four 8x8 matrices of 16-bit elements. Source: PTX ISA, "stmatrix".
#pragma once

#include <cstdint>
#include <source_location>

#include "runtime/emulation/device/accesses.h"
#include "runtime/emulation/device/matrix_rows.h"

namespace tessera::emulation {

/// Gathers the lane's row from the fragments of the warp: `fragment` is laid out as ldmatrix loads it.
/// `address` is where the row goes.
void gather_matrix_row(std::uint64_t (&row)[2], const unsigned (&fragment)[4], const void* address,
                       const std::source_location& site);

/// Lane 8 m + i points to row i of matrix m. This code is compiled with the kernel, so sanitizers see the
/// write.
inline void store_matrices(void* row, const unsigned (&fragment)[4],
                           const std::source_location& site) {
  check_matrix_row("stmatrix", row, site);
  std::uint64_t copy[2];
  gather_matrix_row(copy, fragment, row, site);
  auto* words = static_cast<std::uint64_t*>(row);
  const Unnoted unnoted;
  words[0] = copy[0], words[1] = copy[1];
}

}  // namespace tessera::emulation
