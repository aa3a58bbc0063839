// The emulated NCCL: its share of a GPU, and the ranks that it joins.
#pragma once

namespace tessera::emulation {

struct NcclModel {
  /// Multiprocessors that a collective holds on each GPU until it has ended.
  unsigned multiprocessors = 0;
  /// Whether ranks that are threads may use it, in place of processes. It joins no processes.
  bool takes_threads = true;
};

NcclModel nccl_model();
void set_nccl_model(const NcclModel& model);

/// Sets the model for the scope.
class NcclModelGuard {
 public:
  explicit NcclModelGuard(const NcclModel& model) { set_nccl_model(model); }
  ~NcclModelGuard() { set_nccl_model({}); }
  NcclModelGuard(const NcclModelGuard&) = delete;
  NcclModelGuard& operator=(const NcclModelGuard&) = delete;
};

}  // namespace tessera::emulation
