// Faults of the emulated NCCL: for tests of how a program handles them.
#pragma once

#include <string>

namespace tessera::emulation {

struct NcclFaults {
  /// Calls stay in progress, as if another rank never made them.
  bool never_queued = false;
  /// Calls are queued and stop their streams until the communicator is aborted.
  bool never_ends = false;
};

/// Takes effect with the next call of every communicator.
void set_nccl_faults(const NcclFaults& faults);

/// Sets faults for the scope.
class NcclFaultsGuard {
 public:
  explicit NcclFaultsGuard(const NcclFaults& faults) { set_nccl_faults(faults); }
  ~NcclFaultsGuard() { set_nccl_faults({}); }
  NcclFaultsGuard(const NcclFaultsGuard&) = delete;
  NcclFaultsGuard& operator=(const NcclFaultsGuard&) = delete;
};

/// Every communicator that exists reports an error of its own from now on.
void break_nccl_links(const std::string& why);

}  // namespace tessera::emulation
