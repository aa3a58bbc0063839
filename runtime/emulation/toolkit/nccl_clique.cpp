#include "runtime/emulation/toolkit/nccl_clique.h"

#include <algorithm>

namespace tessera::emulation {

Run::Run(std::size_t ranks) {
  for (std::size_t r = 0; r < ranks; ++r) {
    ready.push_back(std::make_shared<Point>());
    read.push_back(std::make_shared<Point>());
  }
}

std::shared_ptr<Run> Rendezvous::next_run(int rank) {
  const std::uint64_t number = runs_of_[static_cast<std::size_t>(rank)]++;
  auto& run = runs_[number];
  if (run == nullptr) run = std::make_shared<Run>(sides.size());
  const std::shared_ptr<Run> found = run;
  if (++found->found == side_count) runs_.erase(number);
  return found;
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

std::pair<std::shared_ptr<Clique>, int> Clique::group_after(Rendezvous& split, int rank) {
  const auto side = [&](int r) -> const Operation& {
    return *split.sides[static_cast<std::size_t>(r)];
  };
  const int color = side(rank).color;
  std::vector<int> members;
  for (int r = 0; r < ranks(); ++r) {
    if (side(r).color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return side(a).key < side(b).key; });
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Clique>& group = split.groups[color];
  if (group == nullptr) {
    group = std::make_shared<Clique>(static_cast<int>(members.size()), options_);
    for (std::size_t i = 0; i < members.size(); ++i) {
      group->devices_[i] = devices_[static_cast<std::size_t>(members[i])];
    }
  }
  const auto place = std::find(members.begin(), members.end(), rank);
  return {group, static_cast<int>(place - members.begin())};
}

bool Clique::duplicate_device() {
  const std::lock_guard lock(mutex_);
  std::vector<int> sorted = devices_;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
}

int Clique::device_of(int rank) {
  const std::lock_guard lock(mutex_);
  return devices_[static_cast<std::size_t>(rank)];
}

std::shared_ptr<Rendezvous> Clique::rendezvous(int from, int to, std::uint64_t number, int sides) {
  const std::lock_guard lock(mutex_);
  auto& found = rendezvous_[{from, to, number}];
  if (found == nullptr) found = std::make_shared<Rendezvous>(devices_.size(), sides);
  const std::shared_ptr<Rendezvous> rendezvous = found;
  if (++rendezvous->found == sides) rendezvous_.erase({from, to, number});
  return rendezvous;
}

void Clique::arrive(Rendezvous& rendezvous, int rank, const Operation& side) {
  const std::lock_guard lock(mutex_);
  rendezvous.sides[static_cast<std::size_t>(rank)] = std::make_unique<Operation>(side);
  ++rendezvous.arrived;
  changed_.notify_all();
}

bool Clique::wait_until_all_arrived(Rendezvous& rendezvous, const bool& leave) {
  std::unique_lock lock(mutex_);
  const auto all = [&] { return rendezvous.arrived == rendezvous.side_count; };
  wait(lock, leave, all);
  return all();
}

void Clique::wait_for_abort(const bool& leave) {
  std::unique_lock lock(mutex_);
  wait(lock, leave, [] { return false; });
}

bool Clique::wait_until(const bool& flag, const bool& leave) {
  std::unique_lock lock(mutex_);
  return wait(lock, leave, [&] { return flag; });
}

void Clique::set(bool& flag) {
  const std::lock_guard lock(mutex_);
  flag = true;
  changed_.notify_all();
}

}  // namespace tessera::emulation
