// MachineRates: how fast a machine computes, moves memory and sends, in a few numbers.
//
// A message of b bytes takes a + b / B seconds: a latency a, and a time per byte. This is the
// alpha-beta model (Hockney 1994; Thakur, Rabenseifner, Gropp 2005, for collectives). The numbers
// are fitted on the machine or come from a data sheet; `source` says which.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/stream_log.h"

namespace tessera {

/// The rates of one rank while `ranks` ranks of its node compute.
struct ComputeRates {
  int ranks = 1;
  /// Threads of each rank.
  int threads = 1;
  /// e4m3: of the products with 8-bit factors alone.
  DType dtype = DType::f32;
  /// Floating-point operations per second.
  double forward = 0.0;
  double backward = 0.0;
  /// Bytes per second that the optimizer, copies and casts read and write.
  double memory = 0.0;
};

/// A rank's link to the other ranks of a group.
struct Link {
  /// The ranks that it was measured with.
  int ranks = 2;
  /// Seconds of a round without bytes.
  double latency = 0.0;
  /// Bytes per second that a rank receives, or sends.
  double bandwidth = 0.0;
};

/// The host of a node's GPUs: its memory holds offloaded state.
struct HostRates {
  /// A GPU's link to the host's memory, in each direction.
  Link link;
  /// Bytes per second that the node's CPUs read and write. Its ranks get equal parts.
  double memory = 0.0;
};

struct MachineRates {
  std::string name;
  /// "measured", or the data sheet.
  std::string source;
  /// Cores of a node that all ranks on it share, for computing and for collectives. 0: each rank has a
  /// GPU, and its collectives take nothing from its computation.
  int cores = 0;
  /// Collectives go around a ring, in N-1 messages per round (NCCL), or directly to every rank.
  bool rings = false;
  /// The switch of a node adds (NVLink SHARP): in an all-reduce a rank sends its S bytes to the switch once and receives
  /// the sums, and sends its share of the sums for all: (N+1)/N S instead of 2 (N-1)/N S. Two ranks, and groups that leave the node,
  /// gain nothing.
  bool switch_adds = false;
  std::vector<ComputeRates> compute;
  /// Within a node, by ranks.
  std::vector<Link> links;
  /// Between nodes.
  std::optional<Link> network;
  /// No value: the time of steps with offloading is not known.
  std::optional<HostRates> host;

  /// The rates for `ranks` ranks on a node: the entry with the most ranks that does not exceed this
  /// number. Raises Error without rates for the dtype.
  const ComputeRates& compute_of(int ranks, DType dtype) const;
  /// The same for products with 8-bit factors. A machine without such rates expands the factors to `dtype`.
  const ComputeRates& compute_in_8_bits(int ranks, DType dtype) const;
  const Link& link_of(int ranks) const;
};

/// Seconds of the host's work (is_of_host) for a rank of a node with so many ranks. Raises Error without
/// rates of the host.
double host_seconds(const MachineRates& machine, const Work& work, int ranks_on_node);

/// Seconds of a transfer that shares its link with no other: `rounds` latencies, and the bytes over
/// the slower of the link within the node and, for the bytes that leave it, the network. Raises Error
/// if bytes leave the node and there is no network.
double transfer_seconds(const MachineRates& machine, const Work& work);

/// The latency and bandwidth with the least squares of relative errors: of (rounds, bytes, seconds).
struct TimedTransfer {
  double rounds = 1.0;
  double bytes = 0.0;
  double seconds = 0.0;
};
Link fit_link(int ranks, const std::vector<TimedTransfer>& transfers);

}  // namespace tessera
