#include "runtime/emulation/toolkit/peer_waits.h"

#include <string>

#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"

namespace tessera::emulation {

void PeerWaits::launch(const Key& key, const Side& side, const std::vector<int>& others) {
  const auto [found, is_first] = launched_.try_emplace(key);
  Launched& launched = found->second;
  if (is_first) launched.missing.insert(others.begin(), others.end());
  launched.missing.erase(side.device);
  launched.sides.push_back(side);
  if (launched.missing.empty()) launched_.erase(found);
}

void PeerWaits::forget(const void* clique) {
  std::erase_if(launched_, [&](const auto& entry) { return std::get<0>(entry.first) == clique; });
}

const PeerWaits::Side* PeerWaits::waiting_for(int device) const {
  for (const auto& [key, launched] : launched_) {
    if (!launched.missing.contains(device)) continue;
    for (const Side& side : launched.sides) {
      if (are_linked(side.device, device)) return &side;
    }
  }
  return nullptr;
}

cudaError_t check_peers(int device, const char* call) {
  const PeerWaits::Side* const side = Devices::get().peer_waits.waiting_for(device);
  if (side == nullptr) return cudaSuccess;
  return refuse(cudaErrorIllegalState, std::string(call) + " on GPU " + std::to_string(device) +
                                           " waits for the kernels of GPU " +
                                           std::to_string(side->device) +
                                           ", which is linked to it; there " + side->call +
                                           " waits for this rank's launch: neither ends");
}

}  // namespace tessera::emulation
