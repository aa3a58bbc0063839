// Bucket: neighbouring units whose parameters travel together.
//
// Units are what a model is made of; buckets are what a strategy moves. By default each unit is a
// bucket of its own. Larger buckets mean fewer, longer messages and more memory for parameters in
// transit. Parameters own no memory, so buckets are cheap to make for a model of any size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/unit.h"

namespace tessera {

struct Bucket {
  /// Names of its units, joined by '+'.
  std::string name;
  /// Indices into the model's list of units: neighbours, in order.
  std::vector<int> units;
  /// The parameters to be trained, then the frozen ones; in the units' order otherwise.
  std::vector<Parameter> parameters;
  /// See Unit::at_both_ends().
  bool at_both_ends = false;

  std::int64_t numel() const;
};

/// Cuts a model's units into buckets as `rule` says:
///   "unit"        every unit is a bucket
///   "5000000"     neighbouring units are joined until a bucket has so many parameters
///   "h.0,h.4"     a bucket begins at each of the units named, and at the first
/// A unit at both ends of the model always is a bucket of its own. Raises Error on another rule or
/// an unknown unit.
std::vector<Bucket> make_buckets(const Units& units, const std::string& rule = "unit");

}  // namespace tessera
