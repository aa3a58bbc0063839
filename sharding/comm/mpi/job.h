// MpiJob: the processes of one mpirun, and how they end together.
//
// MPI itself knows no deadlines. When one process fails, MPI gives the others no reason. So every
// wait here is a loop that tests the requests, reads notices and checks the clock. Notices are short
// messages between any two processes, apart from the collectives:
//
//   failed   with the reason: a process that waits, now or later, raises Error with it
//   ended    this process has left the body of its run
//
// A process reads its notices when it next waits. The sender does not wait for that.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sharding/comm/call.h"
#include "sharding/comm/deadline.h"

namespace tessera {

/// Raises Error with MPI's description unless `code` is success.
void check_mpi(int code, const char* what);

class MpiJob {
 public:
  /// Starts MPI in this process, once per process. Raises Error if MPI lacks full support for
  /// threads, which collectives on several streams need.
  /// `ranks_per_node`: as in WorldOptions.
  MpiJob(const Deadline& deadline, int ranks_per_node);
  /// Finalizes MPI, unless the job has failed: then the others may not take part.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Number of this process among those of its machine.
  int rank_on_machine() const { return rank_on_machine_; }
  /// Cores that this process may use, shared with the processes that may use the same ones; at
  /// least 1.
  int threads_per_rank() const { return threads_per_rank_; }

  /// A number of the node of a rank.
  int node_of(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }

  /// One request and the rank on its other end.
  struct Pending {
    MPI_Request request;
    int peer;
  };
  /// Returns when all are complete. Raises Error if another process has failed, or when the
  /// deadline has passed. The message describes the `call`.
  void wait(std::vector<Pending>& pending, const std::function<std::string()>& call);

  /// Sends the reason of the job's failure to all processes, this one included. The first counts.
  void abort(const std::string& reason);
  /// The same for an exception of this process.
  void abort_for(const std::exception& error) { abort(failure_of(rank_, size_, error.what())); }
  bool failed() const { return failed_.load(); }
  /// The reason, if the job has failed.
  std::optional<std::string> failure();
  /// Raises Error with the reason if the job has failed.
  void raise_if_failed();

  /// Keeps tensors for the rest of the job: MPI may still write to them after a wait has raised.
  void keep(const Call& call, const Tensor& staging);

  /// Waits for the other processes to leave their bodies too; after a failure for a short while
  /// only. Returns the failure of the job: the lowest rank that failed by itself, and its reason.
  /// Empty if no rank failed.
  struct Failure {
    int rank;
    std::string reason;
  };
  std::optional<Failure> end();

 private:
  struct Notice {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void send_notice(int tag, const std::string& text);
  void read_notices();
  [[noreturn]] void fail_timeout(std::vector<Pending>& pending, const std::string& call);

  const Deadline deadline_;
  int rank_ = 0;
  int size_ = 1;
  int rank_on_machine_ = 0;
  int threads_per_rank_ = 1;
  std::vector<int> nodes_;
  MPI_Comm notices_ = MPI_COMM_NULL;

  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  // guards all below
  std::string reason_;
  std::map<int, std::string> failures_;  // by the rank that failed by itself
  std::vector<bool> ended_;
  std::deque<Notice> sent_;  // MPI reads the texts until the job ends
  std::vector<Call> kept_calls_;
  Tensors kept_tensors_;
};

}  // namespace tessera
