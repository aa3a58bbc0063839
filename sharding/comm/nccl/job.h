// NcclJob: the NCCL communicators of one rank, and how they end.
//
// NCCL's communicators do not block here: making one, and every call, returns at once and is asked
// after until it has been queued. So a rank that does not come costs the deadline, not the run. A
// thread looks after the job meanwhile: when another rank has failed, or NCCL reports an error of
// its own (a broken link), it aborts the communicators, which ends what they have running on the
// GPU. Otherwise a stream that waits for a lost rank would never end, nor a host that waits for it.
//
// The job owns the communicators until its end, so that all ranks take leave of them in one order.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sharding/comm/communicator.h"

namespace tessera {

class NcclJob {
 public:
  /// `control` is the world's, and outlives the job.
  NcclJob(Communicator& control, std::chrono::milliseconds deadline);
  /// Aborts what finish() has not ended.
  ~NcclJob();
  NcclJob(const NcclJob&) = delete;
  NcclJob& operator=(const NcclJob&) = delete;

  /// A communicator among the ranks of `group`, part of the world. A collective.
  ncclComm_t connect(Communicator& group);

  /// Makes calls to NCCL as one group, and returns when they are queued. `calls` hands the result
  /// of each to `take`. `what` they are, for messages.
  using Take = std::function<void(ncclResult_t)>;
  void queue(ncclComm_t comm, const std::function<std::string()>& what,
             const std::function<void(const Take& take)>& calls);

  /// Raises Error with the reason if this or another rank has failed.
  void raise_if_failed();
  /// Notes the first reason and aborts all communicators.
  void fail_with(const std::string& reason);

  /// Waits until everything queued anywhere has ended, then takes leave of NCCL. A collective.
  void finish();

 private:
  void watch();
  /// Raises Error unless `status` is success or "in progress".
  void check_nccl(ncclResult_t status, ncclComm_t comm, const std::string& what) const;
  void wait_until_done(ncclComm_t comm, const std::function<std::string()>& what);

  Communicator& control_;
  const std::chrono::milliseconds deadline_;
  const Device device_;

  std::mutex mutex_;  // of all below, and of calls to NCCL
  std::vector<ncclComm_t> comms_;
  std::optional<std::string> failure_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread watcher_;
};

}  // namespace tessera
