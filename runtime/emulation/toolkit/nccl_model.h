// The emulated NCCL: its share of a GPU, and the ranks that it joins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::emulation {

struct NcclModel {
  /// Multiprocessors that a collective holds on each GPU until it has ended, unless its communicator
  /// allows fewer thread blocks.
  unsigned multiprocessors = 0;
  /// The ranks of a communicator that reach each other's windows, neighbours; 0: all. -1: none, and
  /// windows are no device memory.
  int lsa_ranks = 0;
  /// Whether ranks that are threads may use it, in place of processes. It joins no processes.
  bool takes_threads = true;
};

NcclModel nccl_model();
void set_nccl_model(const NcclModel& model);

/// Communicators so far that have channels and buffers of their own: all but those that were split off
/// from one with splitShare.
std::uint64_t nccl_resources();

/// Windows that are registered with communicators, of all ranks.
std::size_t registered_windows();

/// Products of cuBLASLt so far that began while a collective held multiprocessors, and counted on more
/// than the others.
std::uint64_t crowded_products();

/// Sets the model for the scope.
class NcclModelGuard {
 public:
  explicit NcclModelGuard(const NcclModel& model) { set_nccl_model(model); }
  ~NcclModelGuard() { set_nccl_model({}); }
  NcclModelGuard(const NcclModelGuard&) = delete;
  NcclModelGuard& operator=(const NcclModelGuard&) = delete;
};

}  // namespace tessera::emulation
