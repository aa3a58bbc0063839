// A resolved configuration on a number of ranks: shares of a batch, and the sharding's numbers of the model.
#pragma once

#include <string>

#include "tools/train/resolve.h"

namespace tessera {

/// Sets the numbers of the model and the data among the sharding options.
void describe_to_sharding(ResolvedConfig& run);

/// The configuration on so many ranks. With train.elastic, data.accumulation_steps is the share of
/// each. Raises Error if the ranks do not divide train.elastic.
ResolvedConfig on_ranks(ResolvedConfig run, int ranks);

/// Raises Error unless the sharding suits this number of ranks.
void check_sharding(const ResolvedConfig& run, int ranks);

/// Empty if a batch divides evenly among the micro-batches of so many ranks; otherwise the problem.
std::string uneven_batch(const ResolvedConfig& run, int ranks);

/// Raises Error unless the sharding suits this number of ranks and a batch divides evenly among
/// their micro-batches.
void check_ranks(const ResolvedConfig& run, int ranks);

}  // namespace tessera
