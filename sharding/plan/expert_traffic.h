// ExpertTraffic: the bytes of rows that travel to the ranks of their experts.
//
// They are exact for given counts. Other traffic depends only on the model and the options
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
  /// The tokens of the rows that are sent, each once for each rank that it goes to.
  std::int64_t copies = 0;
};

/// One layer with experts.
struct ExpertTraffic {
  /// The ranks that share out `experts` experts.
  std::int64_t ranks = 1;
  std::int64_t experts = 1;
  /// As ExpertChoices::pieces. Each piece has offsets of its own.
  std::int64_t pieces = 1;
  ExpertCopies copies = ExpertCopies::each_expert;
  std::int64_t channels = 1;
  WeighedInput weighed = WeighedInput::down;
  /// The dtype that the layer is computed in.
  DType dtype = DType::f32;
  /// The parts of a sum over the channels inside experts on this rank, which travel back one by one in f32; 0:
  /// no ranks divide these sums, and results travel in `dtype`.
  std::int64_t parts = 0;

  /// Bytes of an element of the sums that travel back to a token.
  std::int64_t bytes_of_sums() const;

  /// Bytes that a rank sends in a forward pass.
  std::int64_t forward(const TravellingRows& rows) const;
  /// Bytes that a rank sends in a backward pass, without those of a recomputed forward pass
  /// (activation checkpointing).
  std::int64_t backward(const TravellingRows& rows) const;
};

/// The rows that travel if each rank's tokens take `per_token` experts, all of them equally often and any of them
/// together.
TravellingRows balanced_rows(const ExpertTraffic& traffic, std::int64_t tokens,
                             std::int64_t per_token);

}  // namespace tessera
