// The tensor core's instructions for a warp: ldmatrix and mma.sync, by the fragment layouts that
// the PTX manual gives (sections "ldmatrix" and "Matrix Fragments for mma.m16n8k16").
#pragma once

#include <cstdint>
#include <source_location>

#include "runtime/half.h"

namespace tessera::emulation {

/// Four 8x8 matrices of 16-bit elements; row i of matrix m is where lane 8 m + i points. `row`
/// holds the lane's row, `address` where it came from.
void load_matrices(unsigned (&fragment)[4], const std::uint64_t (&row)[2], const void* address,
                   bool transposed, const std::source_location& site);
void check_matrix_row(const void* row, const std::source_location& site);

/// c (16x8) += a (16x16) b (16x8) in f32. A GPU sums in an order and to a precision of its own.
template <typename T>
void multiply_accumulate(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                         const std::source_location& site);

template <bool transposed>
void load_matrices(unsigned (&fragment)[4], const void* row, const std::source_location& site) {
  check_matrix_row(row, site);
  const auto* words = static_cast<const std::uint64_t*>(row);
  const std::uint64_t copy[2] = {words[0],
                                 words[1]};  // compiled with the kernel: sanitizers see it
  load_matrices(fragment, copy, row, transposed, site);
}

}  // namespace tessera::emulation
