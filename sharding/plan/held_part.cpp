#include "sharding/plan/held_part.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/integer.h"

namespace tessera {
namespace {

/// The product of extents [begin, end).
std::int64_t product(const Shape& shape, int begin, int end) {
  std::int64_t elements = 1;
  for (int i = begin; i < end; ++i) elements *= shape[i];
  return elements;
}

Shape part_of_experts(const Parameter& parameter, const CutSizes& sizes) {
  const Shape shape = parameter.stored_shape();
  return parameter.stacked() ? shape.with(0, shape[0] / sizes.experts) : shape;
}

/// Rows of a table per part of a sum over the vocabulary.
std::int64_t rows_of_part(std::int64_t rows, const CutSizes& sizes) {
  return ceil_div(rows, std::int64_t{sizes.sum_parts});
}

}  // namespace

bool is_divided(const Parameter& parameter, const CutSizes& sizes) {
  return parameter.cut().divided != Divided::nothing && sizes.sum_parts > 1;
}

Shape held_shape(const Parameter& parameter, const CutSizes& sizes) {
  const Shape shape = part_of_experts(parameter, sizes);
  if (!is_divided(parameter, sizes) || sizes.tensors == 1) return shape;
  const Cut& cut = parameter.cut();
  const std::int64_t extent = shape[cut.dimension];
  if (cut.divided != Divided::vocabulary) return shape.with(cut.dimension, extent / sizes.tensors);
  return shape.with(cut.dimension, rows_of_part(extent, sizes) * sizes.sum_parts / sizes.tensors);
}

HeldPart held_part(const Parameter& parameter, const CutSizes& sizes, int expert, int tensor) {
  const Shape of_experts = part_of_experts(parameter, sizes);
  HeldPart part{.shape = held_shape(parameter, sizes), .elements = {}, .count = of_experts.numel()};
  part.elements.first = parameter.stacked() ? expert * of_experts.numel() : 0;
  if (!is_divided(parameter, sizes) || sizes.tensors == 1) return part;
  const Cut& cut = parameter.cut();
  // The dimension and all behind it are [groups, extent, rest]; a part has a run of each group.
  const std::int64_t held = product(part.shape, cut.dimension, part.shape.rank()) / cut.groups;
  part.elements.first += tensor * held;
  if (cut.divided == Divided::vocabulary) {
    part.count = std::clamp<std::int64_t>(of_experts.numel() - tensor * held, 0, held);
    return part;
  }
  part.count = part.shape.numel();
  part.elements.run = held;
  part.elements.stride = product(of_experts, cut.dimension, of_experts.rank()) / cut.groups;
  return part;
}

void check_cut(const Parameter& parameter, const CutSizes& sizes) {
  check(!parameter.packed() || sizes.tensors == 1,
        "sharding.tensor_parallel {}: '{}' is packed, and tensor ranks do not cut packed rows",
        sizes.tensors, parameter.name());
  check(!parameter.stacked() || parameter.shape()[0] % sizes.experts == 0,
        "sharding.expert_parallel {} does not divide the {} experts of '{}'", sizes.experts,
        parameter.shape()[0], parameter.name());
  if (!is_divided(parameter, sizes) || parameter.cut().divided == Divided::vocabulary) return;
  const Cut& cut = parameter.cut();
  const bool shares =
      sizes.tensors % cut.pieces == 0 && cut.uses % (sizes.tensors / cut.pieces) == 0;
  check(shares || cut.pieces % sizes.tensors == 0,
        "sharding.tensor_parallel {} does not divide the {} {}s of '{}'{}", sizes.tensors,
        cut.pieces, cut.piece, parameter.name(),
        cut.uses > 1 ? ", nor can they be shared by so many ranks" : "");
  const std::int64_t channels = parameter.shape()[cut.dimension] / cut.groups;
  check(channels % sizes.sum_parts == 0, "sharding.grid {} does not divide the {} channels of '{}'",
        sizes.sum_parts, channels, parameter.name());
}

}  // namespace tessera
