// Lengths that depend on ranks or data: of a batch by data.rows_per_rank, of a run by train.epochs.
#pragma once

#include <cstdint>

#include "tools/train/resolve.h"

namespace tessera {

/// The configuration with a batch size in place of data.rows_per_rank, if that is set. Raises Error,
/// with the place of the key, if both were set.
Config with_batch_size(Config config, int ranks);

/// Replaces train.epochs, if that is set, by the steps of so many epochs of `samples` rows. The last
/// step may go on into the next epoch. Raises Error, with the place of the key, if train.steps was set
/// too.
void set_steps(ResolvedConfig& run, std::int64_t samples);

}  // namespace tessera
