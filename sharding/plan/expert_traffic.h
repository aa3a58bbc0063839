// ExpertTraffic: the bytes that rows send on their way to the ranks that hold their experts.
//
// Exact for given counts. Other traffic depends on the model and the options alone
// (sharding/plan/footprint.h), but this part depends on the routers' choices.
#pragma once

#include <cstdint>

#include "autograd/experts.h"
#include "runtime/dtype.h"

namespace tessera {

/// Rows of one rank in one layer and forward pass.
struct TravellingRows {
  /// Rows of this rank's tokens for experts on other ranks, and of other ranks' tokens for experts here.
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

/// One layer with experts.
struct ExpertTraffic {
  /// Ranks that share out so many experts.
  std::int64_t ranks = 1;
  std::int64_t experts = 1;
  std::int64_t channels = 1;
  WeighedInput weighed = WeighedInput::down;
  /// That the layer is computed in.
  DType dtype = DType::f32;

  /// Bytes that a rank sends in a forward pass.
  std::int64_t forward(const TravellingRows& rows) const;
  /// Bytes that a rank sends in a backward pass, without those of a forward pass that is computed
  /// again.
  std::int64_t backward(const TravellingRows& rows) const;
};

/// The rows that travel if every expert gets equally many of `rows` dispatched rows of each rank.
TravellingRows balanced_rows(std::int64_t rows, std::int64_t ranks);

}  // namespace tessera
