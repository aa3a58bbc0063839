#include "sharding/comm/nccl/window.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#include <nccl_device.h>

#include "kernels/cuda/launch.h"

namespace tessera {
namespace {

__global__ void __launch_bounds__(1024)
    write_addresses(std::int64_t* addresses, ncclWindow_t window, int ranks) {
  const int r = static_cast<int>(threadIdx.x);
  if (r < ranks) addresses[r] = reinterpret_cast<std::int64_t>(ncclGetLsaPointer(window, 0, r));
}

}  // namespace

void write_peer_addresses(const Tensor& addresses, void* handle) {
  const auto ranks = static_cast<unsigned>(addresses.numel());
  gpu::launch(write_addresses, dim3(1), dim3(ranks), 0, gpu::stream(),
              addresses.data<std::int64_t>(), static_cast<ncclWindow_t>(handle),
              static_cast<int>(ranks));
}

}  // namespace tessera
#endif
