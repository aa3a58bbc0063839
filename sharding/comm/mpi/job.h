// MpiJob: the processes of one mpirun, and how they end together.
//
// MPI itself knows no deadlines and, when one process fails, no reason to give to the others. So
// every wait here is a loop that tests the requests, looks for notes and watches the clock. Notes
// are short messages between any two processes, beside the collectives:
//
//   failed   with the reason: whoever waits, now or later, raises Error with it
//   ended    this process has left the body of its run
//
// A note has arrived when the receiver next waits. Meanwhile the sender need not stay.
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

namespace tessera {

/// Raises Error with MPI's description unless `code` is success.
void check_mpi(int code, const char* what);

class MpiJob {
 public:
  /// Starts MPI in this process, once in its life. Raises Error if it has no full support for
  /// threads, which collectives on several streams need.
  explicit MpiJob(std::chrono::milliseconds deadline);
  /// Leaves MPI in order, unless the job has failed: then the others may not be there to do so.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Number among the processes of this machine.
  int rank_on_machine() const { return rank_on_machine_; }
  /// Cores that this process may use, shared with the processes that may use the same ones; at
  /// least 1.
  int threads_per_rank() const { return threads_per_rank_; }

  /// One request and the rank on its other end.
  struct Pending {
    MPI_Request request;
    int peer;
  };
  /// Returns when all are complete. Raises Error if another process has failed, or when the
  /// deadline has passed; then `what` says for the message what was waited for.
  void wait(std::vector<Pending>& pending, const std::function<std::string()>& what);

  /// Tells all processes, this one included, why the job has failed; the first reason counts.
  void abort(const std::string& reason);
  /// The same for what this process has raised.
  void abort_for(const std::exception& error) { abort(failure_of(rank_, size_, error.what())); }
  bool failed() const { return failed_.load(); }
  /// The reason, if the job has failed.
  std::optional<std::string> failure();
  /// Raises Error with the reason if the job has failed.
  void raise_if_failed();

  /// Keeps tensors for the rest of the job: MPI may still write to them after a wait has raised.
  void keep(const Call& call, const Tensor& staging);

  /// Waits for the other processes to leave their bodies too; after a failure for a short while
  /// only. Returns what the job failed of: the reason of the lowest rank that failed by itself, and
  /// that rank. Empty if all is well.
  struct Failure {
    int rank;
    std::string reason;
  };
  std::optional<Failure> end();

 private:
  struct Note {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void send_note(int tag, const std::string& text);
  void read_notes();
  [[noreturn]] void fail_for_want_of(std::vector<Pending>& pending, const std::string& what);

  std::chrono::milliseconds deadline_;
  int rank_ = 0;
  int size_ = 1;
  int rank_on_machine_ = 0;
  int threads_per_rank_ = 1;
  MPI_Comm notes_ = MPI_COMM_NULL;

  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  // of all below
  std::string reason_;
  std::map<int, std::string> failures_;  // by the rank that failed by itself
  std::vector<bool> ended_;
  std::deque<Note> sent_;  // MPI reads the texts until the job ends
  std::vector<Call> kept_calls_;
  Tensors kept_tensors_;
};

}  // namespace tessera
