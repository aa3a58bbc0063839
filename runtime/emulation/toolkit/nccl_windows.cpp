// Memory of ncclMemAlloc, its windows, and the calls about them that are local to a rank.
#include "runtime/emulation/toolkit/nccl_windows.h"

#include <algorithm>

#include <nccl_device.h>

#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/emulation/toolkit/nccl_registered.h"
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

using tessera::emulation::Devices;
using tessera::emulation::NcclWindows;

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
    throw tessera::emulation::Failure("ncclGetLsaPointer: the window is not registered");
  }
  if (peer < 0 || peer >= window->reach) {
    throw tessera::emulation::Failure("ncclGetLsaPointer: no such rank is in the LSA team");
  }
  const auto team = window->rank / static_cast<std::size_t>(window->reach);
  return window->addresses[team * static_cast<std::size_t>(window->reach) +
                           static_cast<std::size_t>(peer)] +
         offset;
}
