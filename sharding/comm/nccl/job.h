// NcclJob: the NCCL communicators of one rank, and how they end.
//
// NCCL's communicators do not block here. Making one, and every call, returns at once and is polled
// until it has been queued. So a missing rank costs the deadline, not the run. A thread watches the
// job meanwhile. It aborts the communicators when another rank has failed, when NCCL reports an
// error of its own (a broken link), or when a call has not ended on the GPU within the deadline. An
// abort ends the calls that are running. Without it a stream that waits for a lost rank would never
// end, nor a host that waits for the stream.
//
// One communicator is connected, among all ranks. The others are split off from it and share its channels
// and buffers, so a mesh of many axes takes no more of a GPU's memory than one axis with as many neighbours.
//
// The job owns the communicators until its end, so that all ranks finalize them in one order. It also holds the
// windows: memory that no tensor uses any more is freed at the next registration, or at the end, when the
// rank's calls have ended. After a failure the context keeps it. Otherwise a rank that raises an
// error would wait for its GPU before the others hear of the error.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sharding/comm/communicator.h"
#include "sharding/comm/deadline.h"
#include "sharding/comm/nccl/window.h"

namespace tessera {

class NcclJob {
 public:
  /// `control` is the world's, and outlives the job. `ctas`: as WorldOptions::nccl_ctas.
  NcclJob(Communicator& control, const Deadline& deadline, int ctas, bool windows = false);
  /// Aborts the communicators that finish() has not ended.
  ~NcclJob();
  NcclJob(const NcclJob&) = delete;
  NcclJob& operator=(const NcclJob&) = delete;

  /// A communicator among the ranks of the world. A collective.
  ncclComm_t connect();
  /// The communicator of those ranks of `parent` that pass the same color, at least 0, by their ranks.
  /// A collective. Waits until the rank's earlier calls have ended on the GPU: NCCL might wait for ever
  /// for a split and a call at once.
  ncclComm_t split(ncclComm_t parent, int color, int rank);

  /// Memory that all `ranks` ranks of `comm` register. A collective; all ask for equally many bytes.
  std::shared_ptr<const NcclWindow> register_window(ncclComm_t comm, std::int64_t bytes, int ranks);
  /// The window of `comm` that `x` lies in, or null.
  std::shared_ptr<const NcclWindow> window_of(ncclComm_t comm, const Tensor& x);

  /// Makes calls to NCCL as one group on the current stream, and returns when they are queued.
  /// `calls` hands the result of each to `take`. `describe` describes them, for messages.
  using Take = std::function<void(ncclResult_t)>;
  void queue(ncclComm_t comm, const std::function<std::string()>& describe,
             const std::function<void(const Take& take)>& calls);

  /// The reason, if this or another rank has failed.
  std::optional<std::string> failure();
  /// Raises Error with the reason if this or another rank has failed.
  void raise_if_failed();
  /// Keeps the first reason and aborts this rank's NCCL communicators.
  void fail_with(const std::string& reason);
  /// The same on every rank, with the reason of the rank that is first to call this.
  void abort_all(const std::string& reason);

  /// Waits until everything queued anywhere has ended, then finalizes NCCL. A collective.
  void finish();

 private:
  /// A group of calls on the GPU.
  struct UnderWay {
    std::string description;
    Event end;
    DeadlineClock::TimePoint queued;
  };

  void watch();
  /// The reason to abort, if there is one. Under the mutex.
  std::optional<std::string> find_problem();
  std::optional<std::string> find_broken_link();
  std::optional<std::string> find_overdue_call();
  /// Raises Error unless `status` is success or "in progress".
  void check_nccl(ncclResult_t status, ncclComm_t comm, const std::string& what) const;
  void wait_until_queued(ncclComm_t comm, const std::function<std::string()>& describe);
  void wait_until_ended();
  /// Ends the windows that no tensor uses, or all. Waits until the rank's calls have ended.
  enum class Windows { unused, all };
  void end_windows(Windows which);
  /// Under the mutex, or without the watcher.
  void abort_communicators();
  /// In a capture: watches every launch of the graph, which has this rank's calls.
  void watch_launches();

  Communicator& control_;
  const Deadline deadline_;
  const int ctas_;
  const bool windows_allowed_;
  const Device device_;

  std::mutex mutex_;                // guards all below, and calls to NCCL
  std::vector<ncclComm_t> comms_;   // in the order in which they were made
  ncclComm_t splitting_ = nullptr;  // NCCL writes here while a split is under way
  std::list<UnderWay> under_way_;
  std::vector<std::shared_ptr<NcclWindow>> windows_;
  int watched_capture_ = 0;  // the last
  std::optional<std::string> failure_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread watcher_;
};

}  // namespace tessera
