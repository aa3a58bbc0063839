// The tensor core's instructions for a warp: ldmatrix and mma.sync.
//
// The fragment layouts are those of the PTX manual, sections "ldmatrix" and "Matrix Fragments for
// mma.m16n8k16".
#pragma once

#include <cstdint>
#include <source_location>

#include "runtime/emulation/device/accesses.h"
#include "runtime/half.h"

namespace tessera::emulation {

/// Loads four 8x8 matrices of 16-bit elements. Lane 8 m + i points to row i of matrix m. `row` holds
/// the lane's row, `address` its address.
void load_matrices(unsigned (&fragment)[4], const std::uint64_t (&row)[2], const void* address,
                   bool transposed, const std::source_location& site);
void check_matrix_row(const void* row, const std::source_location& site);

/// c (16x8) += a (16x16) b (16x8) in f32. With Arithmetic::approximate (arithmetic.h) the sum is
/// formed as an A100 forms it: 8 products and c at a time, truncated.
template <typename T>
void multiply_accumulate(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                         const std::source_location& site);

template <bool transposed>
void load_matrices(unsigned (&fragment)[4], const void* row, const std::source_location& site) {
  check_matrix_row(row, site);
  const auto* words = static_cast<const std::uint64_t*>(row);
  std::uint64_t copy[2];
  {
    const Unnoted unnoted;
    // This code is compiled with the kernel, so sanitizers see the read.
    copy[0] = words[0], copy[1] = words[1];
  }
  load_matrices(fragment, copy, row, transposed, site);
}

}  // namespace tessera::emulation
