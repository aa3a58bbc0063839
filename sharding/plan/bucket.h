// Bucket: parameters of neighbouring units that travel together.
//
// Units are the pieces of a model; buckets are the pieces that a strategy moves. By default each
// unit is a bucket of its own. Larger buckets mean fewer, longer messages and more memory for
// parameters in transit. If rules give the parameters of a unit different placements (placement.h),
// the unit has a bucket for each placement. Parameters own no memory, so buckets are cheap to make
// for a model of any size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autograd/unit.h"

namespace tessera {

struct Bucket {
  /// The names of the bucket's units, joined by '+'.
  std::string name;
  /// Indices into the model's list of units: neighbours, in order.
  std::vector<int> units;
  /// The trained parameters, then the frozen ones; within each, in the order of the units.
  std::vector<Parameter> parameters;
  /// See Unit::at_both_ends().
  bool at_both_ends = false;
  /// Whether it has one of the model's two large tables, the embedding or the head.
  bool has_table = false;
  /// Index of its placement.
  int placement = 0;

  std::int64_t numel() const;
};

/// The index of a parameter's placement.
using PlacementIndex = std::function<int(const Parameter&)>;

/// Cuts a model's units into buckets as `rule` says:
///   "unit"        every unit is a bucket
///   "5000000"     neighbouring units are joined until a bucket has that many parameters
///   "h.0,h.4"     a bucket begins at each of the named units, and at the first unit
/// A bucket also begins at each of the units with an index in `starts`. A unit at both ends of the
/// model is never joined with another. Then each bucket is cut again by
/// the placements of its parameters; without `placement` all have the same one. Raises Error on any
/// other rule, an unknown unit, or a parameter that two units list.
std::vector<Bucket> make_buckets(const Units& units, const std::string& rule = "unit",
                                 const PlacementIndex& placement = {},
                                 const std::vector<int>& starts = {});

}  // namespace tessera
