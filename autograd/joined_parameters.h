// JoinedParameters: several Parameters that an operation uses as one, row below row.
//
// q, k and v are products of one input, and so are gate and up. As one product they are one launch,
// the input is read once, and its gradient is one sum. The parameters stay apart: each has a name, a
// shard and a place in files.
//
// A strategy lays the parameters of a unit into one buffer, in the unit's order. So parameters that
// are listed one after the other are mostly neighbours in memory:
//
//   buffer     | q_proj          | k_proj  | v_proj  | o_proj          | ...
//   joined     |<------------------------------------>|                       a view, no copy
//
// They are not where there is padding between them, where a rule places one in another bucket, or
// where one is frozen. Then the join is a copy in workspace memory. The operation does the same
// either way, so every strategy has the same bits.
#pragma once

#include <vector>

#include "autograd/parameter.h"

namespace tessera {

class JoinedParameters {
 public:
  /// A parameter by itself. It may be undefined, as the bias of a layer without one.
  JoinedParameters(const Parameter& parameter);  // NOLINT: a Parameter is a join of one
  /// All are defined, or all undefined. Extents but the first are equal.
  explicit JoinedParameters(std::vector<Parameter> parts);

  bool defined() const { return parts_.front().defined(); }
  /// Whether any is.
  bool trainable() const;
  const std::vector<Parameter>& parts() const { return parts_; }
  /// The extents of data().
  Shape held_shape() const;
  /// The parameters' data, row below row. Raises Error while a window is closed.
  Tensor data() const;
  /// The same of weights as a factor of this dtype: packed ones are unpacked, and those that are not in 8 bits yet
  /// are rounded, to workspace memory.
  Tensor data_for(DType dtype) const;

 private:
  std::vector<Parameter> parts_;
};

/// The gradients of joined parameters, while an operation adds its contribution.
class JoinedGradient {
 public:
  explicit JoinedGradient(const JoinedParameters& parameters);

  /// What the operation writes to, of the parameters' joined shape; undefined if all are frozen.
  const Tensor& window() const { return window_; }
  /// Whether it adds to the window or overwrites it.
  Accumulate accumulate() const { return accumulate_; }
  /// The operation has written. A window that is a copy goes back to where the gradients lie.
  void finish() const;

 private:
  const std::vector<Parameter>& parts_;
  Tensor window_;
  Accumulate accumulate_ = Accumulate::no;
  bool copied_ = false;
};

}  // namespace tessera
