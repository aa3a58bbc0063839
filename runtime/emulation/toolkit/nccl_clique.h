// The rendezvous of the ranks of an emulated NCCL communicator.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nccl.h>

#include "runtime/emulation/toolkit/device_queue.h"

namespace tessera::emulation {

enum class Kind {
  all_gather,
  reduce_scatter,
  all_reduce,
  reduce,
  broadcast,
  message,
  split,
  window
};

/// One rank's side of a collective, a message or a split.
struct Operation {
  Kind kind;
  const void* from = nullptr;  // of a message: null where it is received
  void* to = nullptr;
  std::size_t count = 0;  // as in the call
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t operation = ncclSum;
  int peer = 0;  // the root, or the other end of a message
  cudaStream_t stream = nullptr;
  bool captured = false;   // by the stream
  int color = 0, key = 0;  // of a split
  // For a gather in a window: the number of its registration, and the offset there.
  std::uint64_t window = 0;  // 0: not in windows
  std::ptrdiff_t offset = 0;
};

/// One run of an operation. Other streams may wait for two points of a rank's stream: its buffers are
/// ready to be read; it has read the others'.
struct Run {
  explicit Run(std::size_t ranks);

  std::vector<PointHandle> ready, read;  // by rank
  int found = 0;
};

/// What the ranks of a communicator have in common.
struct CliqueOptions {
  unsigned most_blocks = 0;   // thread blocks of a collective: ncclConfig_t::maxCTAs
  bool copy_engines = false;  // gathers in windows hold no multiprocessor: NCCL_CTA_POLICY_ZERO
  bool operator==(const CliqueOptions&) const = default;
};

class Clique;

/// The ranks' sides of one operation, by rank. A message has only two sides. An operation that streams
/// captured runs at every launch of the ranks' graphs: the third runs of all ranks belong together.
struct Rendezvous {
  Rendezvous(std::size_t ranks, int side_count)
      : sides(ranks), side_count(side_count), runs_of_(ranks, 0) {}

  /// The rank's next run. The caller holds the lock of Devices.
  std::shared_ptr<Run> next_run(int rank);

  std::vector<std::unique_ptr<Operation>> sides;
  int side_count;
  int found = 0;
  int arrived = 0;
  std::map<int, std::shared_ptr<Clique>> groups;  // after a split, by color

 private:
  std::vector<std::uint64_t> runs_of_;                  // by rank, so far
  std::map<std::uint64_t, std::shared_ptr<Run>> runs_;  // that some side has not found yet
};

class Clique {
 public:
  Clique(int ranks, const CliqueOptions& options)
      : options_(options), devices_(static_cast<std::size_t>(ranks), -1) {}

  int ranks() const { return static_cast<int>(devices_.size()); }
  const CliqueOptions& options() const { return options_; }

  /// Returns when all ranks have connected; false if `leave` became true (this rank was aborted).
  bool connect(int rank, int device, const bool& leave);
  /// Returns when all ranks have finalized; false if `leave` became true.
  bool finalize(const bool& leave);

  /// The rendezvous of operation `number` between these ranks (-1, -1: all ranks). It is forgotten
  /// once `sides` ranks have asked for it.
  std::shared_ptr<Rendezvous> rendezvous(int from, int to, std::uint64_t number, int sides);
  void arrive(Rendezvous& rendezvous, int rank, const Operation& side);
  /// True if all have arrived, also if `leave` is true by then: all ranks queue the operation, or none.
  bool wait_until_all_arrived(Rendezvous& rendezvous, const bool& leave);
  void wait_for_abort(const bool& leave);
  /// Returns when `flag` is true; false if `leave` became true.
  bool wait_until(const bool& flag, const bool& leave);
  /// Sets a flag and wakes the waits that take it.
  void set(bool& flag);
  /// The group of a rank after a split, which all ranks have reached, and its rank there.
  std::pair<std::shared_ptr<Clique>, int> group_after(Rendezvous& split, int rank);
  bool duplicate_device();
  /// The device of a rank that has connected.
  int device_of(int rank);

 private:
  template <typename Done>
  bool wait(std::unique_lock<std::mutex>& lock, const bool& leave, const Done& done) {
    changed_.wait(lock, [&] { return leave || done(); });
    return !leave;
  }

  const CliqueOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> devices_;
  int connected_ = 0;
  int finalized_ = 0;
  std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Rendezvous>> rendezvous_;
};

}  // namespace tessera::emulation
