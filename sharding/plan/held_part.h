// HeldPart: the part of a parameter that a rank computes with.
//
// Most parameters are whole on every rank while it computes. Two axes of the mesh cut some of them:
// "expert" gives a rank some of a layer's experts, whole, and "tensor" gives it some heads, channels or
// rows of the vocabulary (autograd/cut.h). The strategy places this part over the data ranks as if it
// were a parameter of this shape.
#pragma once

#include "autograd/parameter.h"
#include "runtime/elements.h"

namespace tessera {

/// The ranks along the axes "expert" and "tensor", and the parts of a divided sum (TensorAxis).
struct CutSizes {
  int experts = 1;
  int tensors = 1;
  int sum_parts = 1;
  bool operator==(const CutSizes&) const = default;
};

struct HeldPart {
  /// The shape of its memory: a packed parameter has rows of bytes, which are its elements here.
  Shape shape;
  /// The elements of the parameter; those of the part from `count` on are padding, zeros.
  Elements elements;
  std::int64_t count = 0;
};

/// The shape of every rank's part. A vocabulary that several ranks share out is padded to a multiple of
/// sum_parts rows.
Shape held_shape(const Parameter& parameter, const CutSizes& sizes);
/// The part of the rank at these places among the ranks that share it.
HeldPart held_part(const Parameter& parameter, const CutSizes& sizes, int expert, int tensor);
/// Whether tensor-parallel ranks share it out; there may be just one.
bool is_divided(const Parameter& parameter, const CutSizes& sizes);

/// Raises Error, naming the key and the parameter, if the ranks do not divide it.
void check_cut(const Parameter& parameter, const CutSizes& sizes);

}  // namespace tessera
