// NcclWindow: memory of NCCL that all ranks of a communicator have registered.
//
// NCCL gathers into such memory with copy engines, which hold no multiprocessor. Where the GPUs of all ranks
// reach each other's memory, a rank also has an address for the memory of every rank, and sums over ranks
// read it there. NCCL has both since 2.28.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <vector>

#include "runtime/tensor.h"

namespace tessera {

/// Lets a communicator have windows, and gather into them with copy engines. Raises Error where NCCL is too old.
void allow_windows(ncclConfig_t& config);

class NcclWindow {
 public:
  /// Memory on the current GPU. Raises Error if none is left.
  NcclWindow(ncclComm_t comm, std::int64_t bytes);
  /// Waits for the GPU, and frees the memory. The window is no longer registered, or its communicator has ended.
  ~NcclWindow();
  NcclWindow(const NcclWindow&) = delete;
  NcclWindow& operator=(const NcclWindow&) = delete;

  /// A collective, which ends when the communicator's state is success.
  ncclResult_t start_registration();
  ncclResult_t deregister();
  /// Finds the addresses of all ranks' memory, if this GPU reaches it.
  void find_peers(int ranks);

  std::byte* data() const { return data_; }
  ncclComm_t comm() const { return comm_; }
  bool contains(const Tensor& x) const;
  bool reaches_peers() const { return !peers_.empty(); }
  /// A rank's elements at the place of `x`, which is in this rank's memory.
  Tensor at_peer(int rank, const Tensor& x) const;

 private:
  const ncclComm_t comm_;
  const std::int64_t bytes_;
  std::byte* data_ = nullptr;
  void* handle_ = nullptr;      // NCCL's
  std::vector<Storage> peers_;  // by rank
};

/// Queues a kernel that writes the address of each rank's memory, for as many ranks as there are elements.
void write_peer_addresses(const Tensor& addresses, void* handle);

}  // namespace tessera
