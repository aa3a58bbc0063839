// Rendezvous: the point at which the threads of a group wait for each other during a call.
//
//   open     all ranks have made the call; from here on they read each other's tensors
//   halfway  all ranks have done the first half of a collective of two phases
//   close    all ranks have stopped reading; tensors may change
//
// An abort or a deadline ends open and halfway for every rank, for good. close always waits, because
// another rank may still be reading. It cannot hang: between open and close ranks only copy, add and
// wait halfway.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sharding/comm/deadline.h"

namespace tessera {

class Rendezvous {
 public:
  /// `members`: the ranks' numbers in the world, for messages.
  Rendezvous(std::vector<int> members, const Deadline& deadline);

  int ranks() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  const Deadline& deadline() const { return deadline_; }

  /// `call`: its description, for the message about a missed deadline.
  void open(int rank, const std::string& call);
  void halfway(int rank, const std::string& call);
  void close();

  /// Ends this rendezvous, and those of all groups split off from it.
  void abort(const std::string& reason);
  std::optional<std::string> aborted();
  /// `child` belongs to a group that was split off: an abort reaches it too, an earlier one included.
  void add_child(const std::shared_ptr<Rendezvous>& child);

 private:
  /// Returns when all ranks have arrived; true for the last of them.
  bool arrive(std::unique_lock<std::mutex>& lock, int rank, const std::string& call);
  std::vector<int> missing() const;

  const Deadline deadline_;
  const std::vector<int> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> here_;
  int arrived_ = 0;
  std::atomic<std::uint64_t> round_ = 0;  // these two are written under the mutex only
  std::atomic<int> reading_ = 0;
  std::optional<std::string> aborted_;
  std::vector<std::weak_ptr<Rendezvous>> children_;
};

}  // namespace tessera
