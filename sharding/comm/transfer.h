// The work of a collective, as a dry run logs it (runtime/stream_log.h).
#pragma once

#include "runtime/stream_log.h"
#include "sharding/comm/call.h"

namespace tessera {

/// With N ranks and S bytes of whole tensors, the busiest rank receives
///
///                        rounds   bytes
///   all_gather           1        (N-1)/N S
///   reduce_scatter       1        (N-1)/N S
///   all_reduce           2        2 (N-1)/N S     a reduce_scatter, then an all_gather
///   reduce               2        2 (N-1)/N S     in the second round only the root receives
///   broadcast            1        S
///   all_to_all           1        the bytes that `rank` sends to others
///   shift                1        S
///   barrier              1        0
///
/// A round is one message to every other rank, or of a shift to one of them (Work::to_one). A group of one rank
/// has no rounds. The root of a broadcast that does not go around a ring sends (N-1) S (Work::from_root).
Work transfer_of(const Call& call, int rank, int ranks, int ranks_on_node);

}  // namespace tessera
