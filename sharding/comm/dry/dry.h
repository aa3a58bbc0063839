// One rank of a dry run among ranks that do not exist.
//
// A dry run (runtime/context.h) executes one rank's program for the sake of its accounts. Its
// collectives move nothing and wait for no rank; they count the bytes that the rank would send.
#pragma once

#include <memory>
#include <vector>

#include "sharding/comm/communicator.h"

namespace tessera {

/// Rank `rank` of a world with a rank for each element of `nodes`, which are numbers of nodes. It
/// can be split only by a function that gives every rank's color.
std::unique_ptr<Communicator> make_dry_communicator(int rank, std::vector<int> nodes);

}  // namespace tessera
