// The work of one rank in operations of NCCL, on its stream.
//
// An operation has two halves: every rank copies the parts of the others' buffers that it needs; when
// all have copied, every rank writes its own buffer. So buffers may be used in place. Streams wait for
// each other at the points of a Run. A graph has the halves as one node, with new points for every
// launch.
#pragma once

#include <memory>
#include <vector>

#include "runtime/emulation/toolkit/nccl_clique.h"

namespace tessera::emulation {

/// A rank's side of one operation of a group.
struct Call {
  Operation side;
  std::shared_ptr<Rendezvous> rendezvous;
};

/// A communicator's part that its queued work and its graphs share. Guarded by the lock of Devices.
struct Membership {
  int rank = 0;
  CliqueOptions options;
  int under_way = 0;  // groups of calls that are queued and have not ended
  bool ended = false;
  std::vector<std::weak_ptr<Run>> runs;  // that another rank may not have begun
};

std::size_t bytes_read_of_each(const Operation& side);

/// Queues the calls on their stream, or records them if it captures. All ranks have arrived. Raises
/// Error if the stream or a buffer is refused. `device` is the rank's.
void queue_exchange(const std::shared_ptr<Membership>& membership, int device,
                    const std::vector<Call>& calls);

/// The communicator ends: its work waits no longer for runs that other ranks have not begun, and
/// launches of graphs that use it fail.
void leave(Membership& membership);

}  // namespace tessera::emulation
