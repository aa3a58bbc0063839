// LeafSum: a parameter's gradient from the leaves of a rank's tokens (context_axis.h).
//
//   LeafSum sum(weight.gradient(), weight.next_contribution());
//   for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
//     matmul(sum.next(), ..., sum.accumulate());   // the leaf's own gradient
//     sum.added();
//   }
//
// The leaves are added as they come, in the balanced tree of kernels/tree_reduce. At most log2(leaves) + 1
// sums are alive. With one leaf the gradient goes straight to the window.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace tessera {

class LeafSum {
 public:
  /// The sum overwrites `window` or is added to it. An undefined window wants no gradient. `leaves` is
  /// a power of two.
  LeafSum(Tensor window, Accumulate accumulate, std::int64_t leaves);

  /// Where the next leaf's gradient is written; undefined if the window is.
  const Tensor& next();
  const Tensor& window() const { return window_; }
  /// How it is written.
  Accumulate accumulate() const { return leaves_ == 1 ? accumulate_ : Accumulate::no; }
  /// It has been written. After the last leaf the window has the sum.
  void added();
  /// The same for a leaf that has been written elsewhere, of several. Overwrites `gradient`.
  void add(Tensor gradient);

 private:
  Tensor window_, next_;
  Accumulate accumulate_;
  std::int64_t leaves_, count_ = 0;
  /// Sums of 2^k leaves for ascending bits k of count_, the largest first.
  std::vector<Tensor> sums_;
};

/// Rows [leaf N / leaves, (leaf + 1) N / leaves) of N along the first dimension; undefined if `rows` is.
Tensor rows_of_leaf(const Tensor& rows, std::int64_t leaf, std::int64_t leaves);

}  // namespace tessera
