// The statistics of a row, for both backends.
#pragma once

namespace tessera {

/// One row of `statistics`, as it is stored.
template <typename C>
struct RowStatistics {
  C maximum, sum, target;
};

}  // namespace tessera
