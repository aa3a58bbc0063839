// Calls that wait for linked GPUs, and collectives of NCCL that keep them waiting.
//
// cudaMalloc, cudaFree and their kin may wait for the kernels of every GPU of the process whose memory
// is linked to this one's (cudaDeviceEnablePeerAccess; NCCL's issues 48, 623 and 744). A collective that
// another rank has launched ends once this rank launches it too, so a rank that allocates in between
// waits for ever. The emulated calls do not wait: CUDA promises no wait either. But they refuse the one
// that would never end.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace tessera::emulation {

/// Guarded by the lock of Devices.
class PeerWaits {
 public:
  /// A collective, or a message, by the address of its ranks' clique, its ends (-1, -1: all ranks)
  /// and its number.
  using Key = std::tuple<const void*, int, int, std::uint64_t>;
  struct Side {
    int device;
    std::string call;  // "ncclAllReduce of rank 0"
  };

  /// Kernels of `device` may reach the memory of `peer`.
  void link(int device, int peer) { links_.insert({device, peer}); }
  void unlink_all() { links_.clear(); }

  /// A rank has launched its side. `others`: the devices of the other sides.
  void launch(const Key& key, const Side& side, const std::vector<int>& others);
  /// The ranks of a clique have been aborted: nothing waits for them.
  void forget(const void* clique);

  /// The side on a linked GPU that waits for a launch of `device`; otherwise null.
  const Side* waiting_for(int device) const;

 private:
  struct Launched {
    std::vector<Side> sides;
    std::set<int> missing;  // devices
  };
  bool are_linked(int a, int b) const { return links_.contains({a, b}) || links_.contains({b, a}); }

  std::set<std::pair<int, int>> links_;
  std::map<Key, Launched> launched_;  // by some sides, not by all
};

/// Refuses `call` on the device if it would wait for ever.
cudaError_t check_peers(int device, const char* call);

}  // namespace tessera::emulation
