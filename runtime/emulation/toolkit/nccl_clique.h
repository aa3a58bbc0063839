// Where the ranks of an emulated NCCL communicator find each other.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <nccl.h>

namespace tessera::emulation {

enum class Kind { all_gather, reduce_scatter, all_reduce, reduce, broadcast, message };

/// One rank's side of a collective or a message.
struct Operation {
  Kind kind;
  const void* from;  // of a message: null where it is received
  void* to;
  std::size_t count;  // as in the call
  ncclDataType_t type;
  ncclRedOp_t operation;
  int peer;  // the root, or the other end of a message
  cudaStream_t stream;
};

/// The ranks' sides of one operation, by rank; of a message only two come. A rank's stream may be
/// waited for at two points: its buffers hold what is to be read, and it has read the others'.
struct Meeting {
  explicit Meeting(std::size_t ranks) : sides(ranks), ready(ranks), read(ranks) {}
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  std::vector<std::unique_ptr<Operation>> sides;
  std::vector<cudaEvent_t> ready;
  std::vector<cudaEvent_t> read;
  int found = 0;
  int came = 0;
  int have_read = 0;
};

class Clique {
 public:
  explicit Clique(int ranks) : devices_(static_cast<std::size_t>(ranks), -1) {}

  int ranks() const { return static_cast<int>(devices_.size()); }

  /// Returns when all ranks have come. `leave` turns true when this rank is aborted.
  bool connect(int rank, int device, const bool& leave);
  /// Returns when all ranks have come to take leave.
  bool finalize(const bool& leave);

  /// The meeting of the number-th operation between these ranks (-1, -1: all of them), which as
  /// many sides ask for.
  std::shared_ptr<Meeting> meeting(int from, int to, std::uint64_t number, int sides);
  void come(Meeting& meeting, int rank, const Operation& side, cudaEvent_t ready);
  bool wait_until_all_came(Meeting& meeting, int sides, const bool& leave);
  void have_read(Meeting& meeting, int rank, cudaEvent_t read);
  bool wait_until_all_have_read(Meeting& meeting, int sides, const bool& leave);
  void wait_for_abort(const bool& leave);
  /// Sets `leave`, and wakes whoever waits with it.
  void abort(bool& leave);
  bool duplicate_device();

 private:
  template <typename Done>
  bool wait(std::unique_lock<std::mutex>& lock, const bool& leave, const Done& done) {
    changed_.wait(lock, [&] { return leave || done(); });
    return !leave;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> devices_;
  int connected_ = 0;
  int finalized_ = 0;
  std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Meeting>> meetings_;
};

}  // namespace tessera::emulation
