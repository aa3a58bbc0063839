#include "runtime/emulation/toolkit/nccl_clique.h"

#include <algorithm>

namespace tessera::emulation {

Rendezvous::~Rendezvous() {
  for (const auto* events : {&ready, &read}) {
    for (const cudaEvent_t event : *events) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
}

bool Clique::connect(int rank, int device, const bool& leave) {
  std::unique_lock lock(mutex_);
  devices_[static_cast<std::size_t>(rank)] = device;
  ++connected_;
  changed_.notify_all();
  return wait(lock, leave, [&] { return connected_ >= ranks(); });
}

bool Clique::finalize(const bool& leave) {
  std::unique_lock lock(mutex_);
  ++finalized_;
  changed_.notify_all();
  return wait(lock, leave, [&] { return finalized_ >= ranks(); });
}

bool Clique::duplicate_device() {
  const std::lock_guard lock(mutex_);
  std::vector<int> sorted = devices_;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
}

std::shared_ptr<Rendezvous> Clique::rendezvous(int from, int to, std::uint64_t number, int sides) {
  const std::lock_guard lock(mutex_);
  auto& found = rendezvous_[{from, to, number}];
  if (found == nullptr) found = std::make_shared<Rendezvous>(devices_.size());
  const std::shared_ptr<Rendezvous> rendezvous = found;
  if (++rendezvous->found == sides) rendezvous_.erase({from, to, number});
  return rendezvous;
}

void Clique::arrive(Rendezvous& rendezvous, int rank, const Operation& side, cudaEvent_t ready) {
  const std::lock_guard lock(mutex_);
  rendezvous.sides[static_cast<std::size_t>(rank)] = std::make_unique<Operation>(side);
  rendezvous.ready[static_cast<std::size_t>(rank)] = ready;
  ++rendezvous.arrived;
  changed_.notify_all();
}

bool Clique::wait_until_all_arrived(Rendezvous& rendezvous, int sides, const bool& leave) {
  std::unique_lock lock(mutex_);
  return wait(lock, leave, [&] { return rendezvous.arrived == sides; });
}

void Clique::have_read(Rendezvous& rendezvous, int rank, cudaEvent_t read) {
  const std::lock_guard lock(mutex_);
  rendezvous.read[static_cast<std::size_t>(rank)] = read;
  ++rendezvous.have_read;
  changed_.notify_all();
}

bool Clique::wait_until_all_have_read(Rendezvous& rendezvous, int sides, const bool& leave) {
  std::unique_lock lock(mutex_);
  return wait(lock, leave, [&] { return rendezvous.have_read == sides; });
}

void Clique::wait_for_abort(const bool& leave) {
  std::unique_lock lock(mutex_);
  wait(lock, leave, [] { return false; });
}

void Clique::abort(bool& leave) {
  const std::lock_guard lock(mutex_);
  leave = true;
  changed_.notify_all();
}

}  // namespace tessera::emulation
