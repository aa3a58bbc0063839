#include "sharding/comm/mpi/job.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/check.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

constexpr int kFailedTag = 1;
constexpr int kEndedTag = 2;

/// How long a process that has failed waits for the others to leave their bodies.
constexpr auto kGracePeriod = std::chrono::seconds(1);

/// The pause between two polls of a waiting thread. None at first, because most messages arrive
/// within microseconds. Then it offers its core, which a computing thread may need. Then it sleeps.
class Backoff {
 public:
  void pause() {
    ++polls_;
    if (polls_ < kPolls) return;
    if (polls_ < 10 * kPolls) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr int kPolls = 200;
  int polls_ = 0;
};

/// This process among the processes of its machine.
struct LocalRanks {
  int rank = 0;
  /// Processes that may run on exactly the cores that this one may run on.
  int processes_on_these_cores = 1;
  /// Rank in the job of the machine's first process.
  int first = 0;
};

LocalRanks local_ranks(int rank_in_job) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof(mine), &mine);
  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
            "finding the processes of this machine");
  int processes = 0;
  LocalRanks found;
  MPI_Comm_size(machine, &processes);
  MPI_Comm_rank(machine, &found.rank);
  std::vector<cpu_set_t> all(static_cast<std::size_t>(processes));
  check_mpi(
      MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, machine),
      "comparing cores");
  found.first = rank_in_job;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &found.first, 1, MPI_INT, MPI_MIN, machine),
            "finding the first process of this machine");
  MPI_Comm_free(&machine);
  found.processes_on_these_cores = static_cast<int>(std::count_if(
      all.begin(), all.end(), [&](const cpu_set_t& other) { return CPU_EQUAL(&other, &mine); }));
  return found;
}

}  // namespace

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("MPI: {} failed: {}", what, std::string_view(text, static_cast<std::size_t>(length)));
}

MpiJob::MpiJob(const Deadline& deadline, int ranks_per_node) : deadline_(deadline) {
  int started = 0;
  MPI_Initialized(&started);
  check(started == 0, "MPI can be started once per process");
  int support = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &support), "starting");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD,
                          MPI_ERRORS_RETURN);  // inherited by communicators made from it
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  ended_.assign(static_cast<std::size_t>(size_), false);
  ended_[rank_] = true;
  check(support == MPI_THREAD_MULTIPLE,
        "this MPI does not support calls from several threads; use an OpenMPI that does");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &notices_), "making a communicator for notices");
  const LocalRanks local = local_ranks(rank_);
  rank_on_machine_ = local.rank;
  threads_per_rank_ = std::max(1, available_threads() / local.processes_on_these_cores);
  const int node = ranks_per_node > 0 ? rank_ / ranks_per_node : local.first;
  nodes_.resize(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&node, 1, MPI_INT, nodes_.data(), 1, MPI_INT, MPI_COMM_WORLD),
            "finding the nodes of all processes");
}

MpiJob::~MpiJob() {
  if (failed()) return;
  for (Notice& notice : sent_) MPI_Wait(&notice.request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&notices_);
  MPI_Finalize();
}

void MpiJob::wait(std::vector<Pending>& pending, const std::function<std::string()>& call) {
  std::vector<MPI_Request> requests;
  for (const Pending& one : pending) requests.push_back(one.request);
  const auto end = deadline_.end();
  for (Backoff backoff;; backoff.pause()) {
    int complete = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete,
                          MPI_STATUSES_IGNORE),
              "a transfer");
    if (complete != 0) return pending.clear();
    raise_if_failed();
    if (deadline_.clock().now() > end) fail_timeout(pending, call());
  }
}

void MpiJob::fail_timeout(std::vector<Pending>& pending, const std::string& call) {
  std::vector<int> missing;
  for (Pending& one : pending) {
    int complete = 0;
    check_mpi(MPI_Test(&one.request, &complete, MPI_STATUS_IGNORE), "a transfer");
    if (complete == 0) missing.push_back(one.peer);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  fail("waited {} ms in {} for {}", deadline_.count(), call, list_ranks(missing));
}

void MpiJob::abort(const std::string& reason) {
  read_notices();
  {
    const std::lock_guard lock(mutex_);
    if (failed_.exchange(true)) return;
    reason_ = reason;
    failures_[rank_] = reason;
  }
  send_notice(kFailedTag, reason);
}

void MpiJob::send_notice(int tag, const std::string& text) {
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) continue;
    const std::lock_guard lock(mutex_);
    Notice& notice = sent_.emplace_back();
    notice.text = text;
    check_mpi(MPI_Isend(notice.text.data(), static_cast<int>(notice.text.size()), MPI_CHAR, to, tag,
                        notices_, &notice.request),
              "sending a notice");
  }
}

void MpiJob::read_notices() {
  for (;;) {
    int found = 0;
    MPI_Message message;
    MPI_Status status;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, notices_, &found, &message, &status),
              "looking for notices");
    if (found == 0) return;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    check_mpi(MPI_Mrecv(text.data(), length, MPI_CHAR, &message, &status), "reading a notice");
    const std::lock_guard lock(mutex_);
    if (status.MPI_TAG == kEndedTag) {
      ended_[status.MPI_SOURCE] = true;
    } else {
      failures_[status.MPI_SOURCE] = text;
      if (!failed_.exchange(true)) reason_ = text;
    }
  }
}

std::optional<std::string> MpiJob::failure() {
  read_notices();
  if (!failed()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return reason_;
}

void MpiJob::raise_if_failed() {
  if (const auto reason = failure()) throw Error(*reason);
}

void MpiJob::keep(const Call& call, const Tensor& staging) {
  const std::lock_guard lock(mutex_);
  kept_calls_.push_back(call);
  kept_tensors_.push_back(staging);
}

std::optional<MpiJob::Failure> MpiJob::end() {
  send_notice(kEndedTag, "");
  std::optional<DeadlineClock::TimePoint> limit;
  for (Backoff backoff;; backoff.pause()) {
    read_notices();
    if (failed() && !limit) limit = deadline_.clock().now() + kGracePeriod;
    const std::lock_guard lock(mutex_);
    const bool all = std::find(ended_.begin(), ended_.end(), false) == ended_.end();
    if (all || (limit && deadline_.clock().now() > *limit)) break;
  }
  const std::lock_guard lock(mutex_);
  if (failures_.empty()) return std::nullopt;
  return Failure{failures_.begin()->first, failures_.begin()->second};
}

}  // namespace tessera
