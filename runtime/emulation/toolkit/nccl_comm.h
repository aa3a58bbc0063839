// A communicator of the emulated NCCL, and the steps that its calls share.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <emulated_device.h>

#include "runtime/emulation/toolkit/nccl_exchange.h"

struct ncclComm {
  std::shared_ptr<tessera::emulation::Clique> clique;
  int rank = 0;
  int device = 0;

  std::mutex mutex;  // of state, error and caller
  ncclResult_t state = ncclInProgress;
  std::string error;
  bool finalized = false;
  bool leave = false;
  std::thread::id caller;  // the thread of the last calls
  bool asked = false;      // for the state, by the caller since then

  std::thread worker;
  std::uint64_t collectives = 0;
  bool shares = false;  // its resources with those that are split off
  std::map<std::pair<int, int>, std::uint64_t> messages;  // from, to
  std::shared_ptr<tessera::emulation::Membership> membership =
      std::make_shared<tessera::emulation::Membership>();
  tessera::emulation::Gate gate;  // opened by an abort

  ncclResult_t current_state() {
    const std::lock_guard lock(mutex);
    return state;
  }
  void set_state(ncclResult_t to, const std::string& why = {}) {
    const std::lock_guard lock(mutex);
    state = to;
    error = why;
  }
  /// Whether the last calls were this thread's.
  bool is_caller() {
    const std::lock_guard lock(mutex);
    return caller == std::this_thread::get_id();
  }
  /// Runs `work` on the communicator's thread. `work` sets the final state.
  template <typename Work>
  void start(Work work) {
    if (worker.joinable()) worker.join();
    asked = false;
    set_state(ncclInProgress);
    const std::lock_guard lock(mutex);
    caller = std::this_thread::get_id();
    worker = std::thread([this, work] {
      cudaSetDevice(device);
      try {
        work();
      } catch (const std::exception& error) {  // the emulated device refuses
        set_state(ncclUnhandledCudaError, error.what());
      }
    });
  }
};

namespace tessera::emulation {

/// Faults that tests have set (nccl_faults.h).
inline std::atomic<bool> never_queued = false, never_ends = false;

/// Returns `why`. `text` becomes the calling thread's last error.
ncclResult_t refuse(ncclResult_t why, const std::string& text);
bool is_live(ncclComm_t comm);
/// Are calls of the communicator under way?
bool is_busy(const ncclComm& comm);
/// Refuses a communicator that takes no calls now.
ncclResult_t check_comm(ncclComm_t comm);

/// Adds to the calls of the stream's capture that are not recorded yet.
void count_late(const Operation& side, int calls);
/// Waits until all ranks are there. False if the communicator was aborted or the ranks disagree.
bool meet(ncclComm& comm, const std::vector<Call>& calls);

}  // namespace tessera::emulation
