// Matrix products on the CPU, from packed panels that a rank's threads share.
//
//   round:  pack panels of b (and of a)   ->  multiply blocks of c
//           (a task per panel)                (a task per block)
//
// The next round is packed while this one is multiplied (pipeline.h).
//
// A round takes as many columns of b as fit, packed, in half of the second-level cache. Rows of a are
// read where they lie if their depth is contiguous, they have the micro-kernel's type and the product
// has few columns; others are packed too. Within a block a panel of a stays in the first-level cache
// while b's panels pass by (engine.h has a picture). A product of few rows has no shared panels: each
// task packs the columns that it needs.
//
// An element's sum is cut into pieces of depth. Their borders depend on K alone, and a piece's sum does
// not depend on other elements. So bits depend neither on threads nor on blocks, nor on the rows that
// are computed together. Except for bf16 they do not depend on the instruction set either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matmul/cpu/steps.h"
#include "kernels/matmul/parts.h"
#include "kernels/op.h"

namespace tessera::cpu {

/// c [M, N] = op(a) op(b), or c += op(a) op(b); op(a) is [M, K] and op(b) [K, N], and K is at least 1.
/// A row of a matrix, as it is stored, begins `a_row`, `b_row` or `c_row` elements after the last.
///
/// With several sections (steps.h) c is [M, sections N] and op(b) [K, sections N]: column n of section
/// s is column s N + n. A block has the same columns of all sections.
struct Product {
  std::int64_t M = 0, N = 0, K = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t a_row = 0, b_row = 0, c_row = 0;
  const ProductSteps* steps = nullptr;  // null: none
};

/// The dtypes and transpositions of a list of products, and bounds for their extents. The workspace
/// depends on these alone, even where the products' extents depend on data.
struct ProductList {
  DType in = DType::f32, out = DType::f32;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  std::int64_t M = 0, N = 0, K = 0;  // at most
  std::int64_t sections = 1;         // of each product
  std::int64_t count = 0;            // of products, at most
  std::int64_t rows = 0;             // the sum of M over the products, at most
  std::span<const DepthPart> parts;  // of a product's sums; empty: they are not formed in parts

  /// Are sums rounded when they are stored?
  bool narrows() const { return out != statistics_dtype(in); }
};

/// The most K of a product that is rounded when it is stored. A deeper sum adds up in c.
inline constexpr std::int64_t kMostRoundedDepth = 4096;

/// Where element `index` of a tensor lies.
inline std::byte* element(const Tensor& x, std::int64_t index) {
  return x.raw() + index * static_cast<std::int64_t>(size_of(x.dtype()));
}

/// Must the caller widen factors of this dtype? OpenBLAS has none of 16 bits.
bool widens_factors(DType in);
/// Must the caller round sums of K products to `out` (narrow.h)? Then multiply_all takes them as f32.
bool rounds_apart(DType out, std::int64_t K);

/// Computes all products by the library that the rank has chosen (matmul/options.h). They must not
/// write the same memory.
void multiply_all(std::span<const Product> products, const ProductList& list);
/// The same by our own panels, even if the rank has chosen OpenBLAS.
void multiply_by_panels(std::span<const Product> products, const ProductList& list);
/// The same for one product; its list has parts. K of both is ignored. A round takes all depths.
void multiply_in_parts(Product product, ProductList list);

}  // namespace tessera::cpu
