// share_of: the part of a list of elements that belongs to one rank.
#pragma once

#include <cstdint>

namespace tessera {

/// Elements [begin, end) of a tensor, counted flat.
struct ElementRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t count() const { return end - begin; }
};

/// The slice of [0, count) that `rank` of `ranks` ranks owns. Slices are contiguous, in rank order,
/// and equal to within one element: slice r begins at count * r / ranks, rounded down.
constexpr ElementRange share_of(std::int64_t count, int rank, int ranks) {
  // The remainder is multiplied apart, so that no product exceeds 64 bits.
  const std::int64_t each = count / ranks, rest = count % ranks;
  return {each * rank + rest * rank / ranks, each * (rank + 1) + rest * (rank + 1) / ranks};
}

}  // namespace tessera
