// A link's latency and bandwidth, fitted to collectives of several sizes.
#pragma once

#include <functional>
#include <vector>

#include "sharding/comm/communicator.h"
#include "sharding/plan/machine_rates.h"

namespace tessera {

/// The operands of a collective: two whole tensors of at most so many bytes, and one rank's part.
struct CollectiveOperands {
  Tensor whole, other, part;

  CollectiveOperands(std::int64_t bytes, int ranks);
};

struct TimedCollective {
  Collective collective;
  std::function<Event()> run;
};

/// all_gather, reduce_scatter, all_reduce, broadcast, reduce and all_to_all of the operands on
/// `stream`, which must outlive them, as must the operands.
std::vector<TimedCollective> timed_collectives(Communicator& world,
                                               const CollectiveOperands& operands,
                                               const Stream& stream);

/// Seconds of one run on the slowest rank from a common start, as the mean of `runs`. A collective.
double slowest_seconds(Communicator& world, int runs, const std::function<void()>& run);

/// Times the collectives that strategies make, on the communication stream, each to its end, and fits
/// the link to them. A collective.
Link measure_link(Communicator& world);

}  // namespace tessera
