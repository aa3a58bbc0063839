#include "sharding/comm/nccl/window.h"

#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/foreign_memory.h"
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#include <nccl_device.h>
#endif

namespace tessera {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)

void allow_windows(ncclConfig_t& config) {
  config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
}

NcclWindow::NcclWindow(ncclComm_t comm, std::int64_t bytes) : comm_(comm), bytes_(bytes) {
  void* data = nullptr;
  const ncclResult_t status = ncclMemAlloc(&data, static_cast<std::size_t>(bytes));
  check(status == ncclSuccess, "no {} bytes of memory for a window of NCCL: {}", bytes,
        ncclGetErrorString(status));
  data_ = static_cast<std::byte*>(data);
}

NcclWindow::~NcclWindow() {
  cudaDeviceSynchronize();
  ncclMemFree(data_);
}

ncclResult_t NcclWindow::start_registration() {
  return ncclCommWindowRegister(comm_, data_, static_cast<std::size_t>(bytes_),
                                reinterpret_cast<ncclWindow_t*>(&handle_), NCCL_WIN_COLL_SYMMETRIC);
}

ncclResult_t NcclWindow::deregister() {
  return ncclCommWindowDeregister(comm_, static_cast<ncclWindow_t>(handle_));
}

void NcclWindow::find_peers(int ranks) {
  if (ncclTeamLsa(comm_).nRanks != ranks) return;
  // Without peer access or CUDA's virtual memory a handle is no window that a kernel can read.
  cudaPointerAttributes attributes{};
  if (handle_ == nullptr || cudaPointerGetAttributes(&attributes, handle_) != cudaSuccess) return;
  if (attributes.type != cudaMemoryTypeDevice) return;
  const CategoryScope category(Category::workspace);
  const Tensor addresses = Tensor::empty({ranks}, DType::i64);
  write_peer_addresses(addresses, handle_);
  for (const std::int64_t address : addresses.to_vector<std::int64_t>()) {
    peers_.push_back(borrow_on_device(reinterpret_cast<std::byte*>(address),
                                      static_cast<std::size_t>(bytes_), nullptr, Charged::no));
  }
}

#else

void allow_windows(ncclConfig_t&) {
  fail("sharding.nccl_windows needs NCCL 2.28 or later; this build has {}.{}", NCCL_MAJOR,
       NCCL_MINOR);
}

// The rest is not reached.
NcclWindow::NcclWindow(ncclComm_t comm, std::int64_t bytes) : comm_(comm), bytes_(bytes) {}
NcclWindow::~NcclWindow() = default;
ncclResult_t NcclWindow::start_registration() {
  return ncclInvalidUsage;
}
ncclResult_t NcclWindow::deregister() {
  return ncclInvalidUsage;
}
void NcclWindow::find_peers(int) {}

#endif

bool NcclWindow::contains(const Tensor& x) const {
  const auto* const first = static_cast<const std::byte*>(x.raw());
  return first >= data_ && first + x.bytes() <= data_ + bytes_;
}

Tensor NcclWindow::at_peer(int rank, const Tensor& x) const {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(x.raw()) - data_);
  return Tensor::view(peers_[static_cast<std::size_t>(rank)], offset, x.shape(), x.dtype());
}

}  // namespace tessera
