// The gradient of the head's weight, from the leaves of a rank's tokens (autograd/leaf_sum.h).
#pragma once

#include <vector>

#include "autograd/leaf_sum.h"
#include "autograd/operations.h"

namespace tessera {

/// As LeafSum. With FurtherUse::yes several leaves are not added but left to the weight's other use.
class HeadGradient {
 public:
  /// `wanted`: whether there is a gradient at all.
  HeadGradient(const Parameter& weight, bool wanted, FurtherUse further_use, std::int64_t leaves);

  /// Where the next leaf's gradient is written, and how; undefined if it is not wanted.
  Tensor next();
  Accumulate accumulate() const { return sum_.accumulate(); }
  /// It has been written.
  void added();

 private:
  Parameter weight_;
  bool leaves_stay_;
  std::int64_t leaves_;
  LeafSum sum_;
  std::vector<Tensor> left_;
};

}  // namespace tessera
