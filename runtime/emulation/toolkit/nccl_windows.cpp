// Memory of ncclMemAlloc, its windows, and the calls about them.
#include "runtime/emulation/toolkit/nccl_windows.h"

#include <algorithm>

#include <nccl_device.h>

#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/emulation/toolkit/nccl_comm.h"
#include "runtime/emulation/toolkit/nccl_model.h"
#include "runtime/poison.h"

namespace tessera::emulation {
namespace {

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

}  // namespace

ncclWindow_t NcclWindows::add(ncclWindow_vidmem window) {
  all_.push_back(std::move(window));
  live_.insert(&all_.back());
  return &all_.back();
}

void NcclWindows::end_all(const void* clique, std::size_t rank) {
  std::erase_if(live_, [&](ncclWindow_t w) { return w->clique == clique && w->rank == rank; });
}

bool NcclWindows::has_window(const void* clique, std::size_t rank, const void* data,
                             std::size_t bytes) const {
  return std::any_of(live_.begin(), live_.end(), [&](ncclWindow_t w) {
    return w->clique == clique && w->rank == rank &&
           overlap(w->addresses[rank], w->bytes, data, bytes);
  });
}

bool NcclWindows::has_window(const void* data) const {
  return std::any_of(live_.begin(), live_.end(),
                     [&](ncclWindow_t w) { return w->addresses[w->rank] == data; });
}

bool NcclWindows::has_windows(const void* clique, std::size_t rank) const {
  return std::any_of(live_.begin(), live_.end(),
                     [&](ncclWindow_t w) { return w->clique == clique && w->rank == rank; });
}

ncclWindow_t NcclWindows::find(const void* clique, std::size_t rank, const void* data,
                               std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(data);
  for (const ncclWindow_t w : live_) {
    const std::byte* const begin = w->addresses[rank % w->addresses.size()];
    if (w->clique != clique || w->rank != rank) continue;
    if (first >= begin && first + bytes <= begin + w->bytes) return w;
  }
  return nullptr;
}

unsigned NcclWindows::reached_by(int device, std::span<const std::uintptr_t> words) const {
  unsigned reached = 1u << device;
  for (const ncclWindow_t w : live_) {
    if (w->device != device || w->reach == 0) continue;
    const std::size_t team =
        w->rank / static_cast<std::size_t>(w->reach) * static_cast<std::size_t>(w->reach);
    for (std::size_t r = team; r < team + static_cast<std::size_t>(w->reach); ++r) {
      const auto begin = reinterpret_cast<std::uintptr_t>(w->addresses[r]);
      const bool named = std::any_of(words.begin(), words.end(), [&](std::uintptr_t word) {
        return word >= begin && word < begin + w->bytes;
      });
      if (named) reached |= 1u << w->devices[r];
    }
  }
  return reached;
}

std::size_t registered_windows() {
  const auto lock = Devices::get().lock();
  return Devices::get().windows.count();
}

}  // namespace tessera::emulation

using namespace tessera::emulation;

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  constexpr std::size_t kGranularity = NcclWindows::kGranularity;
  const std::size_t taken = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  if (cudaMalloc(data, taken) != cudaSuccess) return ncclUnhandledCudaError;
  const auto lock = Devices::get().lock();
  Devices::get().windows.note_memory(*data);
  tessera::poison(static_cast<std::byte*>(*data) + bytes, taken - bytes);
  return ncclSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const Devices& devices = Devices::get();
  const auto lock = Devices::get().lock();
  auto* const window = static_cast<ncclWindow_t>(const_cast<void*>(data));
  const bool is_window = devices.windows.is_live(window) && window->reach > 0;
  const bool on_device = is_window || devices.memory.covers(data);
  attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

void* ncclGetLsaPointer(ncclWindow_t window, std::size_t offset, int peer) {
  // Kernels run under the lock.
  if (!Devices::get().windows.is_live(window)) {
    throw Failure("ncclGetLsaPointer: the window is not registered");
  }
  if (peer < 0 || peer >= window->reach) {
    throw Failure("ncclGetLsaPointer: no such rank is in the LSA team");
  }
  const auto team = window->rank / static_cast<std::size_t>(window->reach);
  return window->addresses[team * static_cast<std::size_t>(window->reach) +
                           static_cast<std::size_t>(peer)] +
         offset;
}

namespace {

/// On the communicator's thread.
void carry_out_registration(ncclComm& comm, const Call& call, std::uint64_t number,
                            ncclWindow_t* window) {
  if (never_queued) return comm.clique->wait_for_abort(comm.leave);
  if (!meet(comm, {call})) return;
  Devices& devices = Devices::get();
  const int ranks = comm.clique->ranks();
  ncclWindow_vidmem made = {.clique = comm.clique.get(),
                            .number = number,
                            .device = comm.device,
                            .bytes = call.side.count,
                            .rank = static_cast<std::size_t>(comm.rank),
                            .reach = ncclTeamLsa(&comm).nRanks};
  for (int r = 0; r < ranks; ++r) {
    const auto& side = call.rendezvous->sides[static_cast<std::size_t>(r)];
    made.addresses.push_back(static_cast<std::byte*>(side->to));
    made.devices.push_back(comm.clique->device_of(r));
  }
  {
    const auto lock = devices.lock();
    if (devices.nccl_model.lsa_ranks < 0) made.reach = 0;
    *window = devices.windows.add(std::move(made));
  }
  comm.set_state(ncclSuccess);
}

}  // namespace

ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  const int model = tessera::emulation::nccl_model().lsa_ranks, ranks = comm->clique->ranks();
  const int team = model > 0 && ranks % model == 0 ? model : ranks;
  return {.nRanks = team, .rank = comm->rank % team, .stride = 1};
}

ncclResult_t ncclMemFree(void* data) {
  Devices& devices = Devices::get();
  {
    const auto lock = devices.lock();
    if (!devices.windows.is_memory(data)) {
      return refuse(ncclInvalidArgument, "the memory is not of ncclMemAlloc");
    }
    if (devices.windows.has_window(data)) {
      return refuse(ncclInvalidUsage, "the memory is registered");
    }
    if (devices.has_work(devices.memory.find(data)->device)) {
      return refuse(ncclInvalidUsage, "the memory's device has work");
    }
    devices.windows.forget_memory(data);
  }
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  if (const ncclResult_t status = check_comm(comm); status != ncclSuccess) return status;
  Clique& clique = *comm->clique;
  {
    Devices& devices = Devices::get();
    const auto lock = devices.lock();
    const auto* const block = devices.memory.find(data);
    if (block == nullptr || !devices.windows.is_memory(block->data) ||
        static_cast<std::byte*>(data) + bytes > block->data + block->bytes) {
      return refuse(ncclInvalidArgument, "the memory is not of ncclMemAlloc");
    }
    if (flags != NCCL_WIN_COLL_SYMMETRIC) {
      return refuse(ncclInvalidArgument, "windows that are not symmetric are not emulated");
    }
    if (devices.windows.has_window(&clique, static_cast<std::size_t>(comm->rank), data, bytes)) {
      return refuse(ncclInvalidUsage, "the memory is registered already");
    }
  }
  *window = nullptr;
  const std::uint64_t number = comm->collectives++;
  const Call call{{.kind = Kind::window, .to = data, .count = bytes},
                  clique.rendezvous(-1, -1, number, clique.ranks())};
  comm->start([=] { carry_out_registration(*comm, call, number + 1, window); });
  return ncclInProgress;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (const ncclResult_t status = check_comm(comm); status != ncclSuccess) return status;
  if (is_busy(*comm)) return refuse(ncclInvalidUsage, "calls of the communicator have not ended");
  const auto lock = Devices::get().lock();
  auto& windows = Devices::get().windows;
  if (!windows.is_live(window) || window->clique != comm->clique.get() ||
      window->rank != static_cast<std::size_t>(comm->rank)) {
    return refuse(ncclInvalidArgument, "the communicator has no such window");
  }
  windows.end(window);
  return ncclSuccess;
}
