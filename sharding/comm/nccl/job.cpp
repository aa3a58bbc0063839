#include "sharding/comm/nccl/job.h"

#include <algorithm>
#include <cstring>

#include "runtime/capture.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"

namespace tessera {
namespace {

constexpr auto kWatchInterval = std::chrono::milliseconds(20);

/// A call younger than this is not asked about: nearly all have ended by then. Half of the deadline
/// if that is less, so that a call is asked about before it is overdue.
constexpr auto kYoung = std::chrono::milliseconds(1000);

/// Rank 0 makes an id, under which the ranks find each other.
ncclUniqueId agree_on_id(Communicator& world) {
  ncclUniqueId id{};
  std::vector<std::uint8_t> bytes(sizeof(id), 0);
  if (world.rank() == 0) {
    const ncclResult_t status = ncclGetUniqueId(&id);
    check(status == ncclSuccess, "ncclGetUniqueId: {}", ncclGetErrorString(status));
    std::memcpy(bytes.data(), &id, sizeof(id));
  }
  const Tensor shared = Tensor::from(bytes, {static_cast<std::int64_t>(bytes.size())});
  world.broadcast({shared}, 0, context().compute_stream(), "NCCL's id");
  std::memcpy(&id, shared.to_vector<std::uint8_t>().data(), sizeof(id));
  return id;
}

/// A group of calls to NCCL. It ends with the scope at the latest, so that an exception between two
/// calls leaves no group open for the calls that follow.
class NcclGroup {
 public:
  NcclGroup() { take(ncclGroupStart()); }
  ~NcclGroup() {
    if (open_) ncclGroupEnd();
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Keeps the first failure.
  void take(ncclResult_t status) {
    if (result_ == ncclSuccess || result_ == ncclInProgress) result_ = status;
  }
  ncclResult_t end() {
    open_ = false;
    take(ncclGroupEnd());
    return result_;
  }

 private:
  bool open_ = true;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace

NcclJob::NcclJob(Communicator& control, const Deadline& deadline, int ctas, bool windows)
    : control_(control),
      deadline_(deadline),
      ctas_(ctas),
      windows_allowed_(windows),
      device_(context().device()) {
  check(!device_.is_cpu(),
        "communicator nccl is for ranks on GPUs, not on the CPU: take threads or mpi");
  watcher_ = std::thread([this] { watch(); });
}

NcclJob::~NcclJob() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  watcher_.join();
  abort_communicators();
  auto& kept = context().state<std::vector<std::shared_ptr<const NcclWindow>>>();
  kept.insert(kept.end(), windows_.begin(), windows_.end());
}

void NcclJob::check_nccl(ncclResult_t status, ncclComm_t comm, const std::string& what) const {
  if (status == ncclSuccess || status == ncclInProgress) return;
  const std::string more = ncclGetLastError(comm);
  fail("NCCL: {}: {}{}{}", what, ncclGetErrorString(status), more.empty() ? "" : ": ", more);
}

ncclComm_t NcclJob::connect() {
  const ncclUniqueId id = agree_on_id(control_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = ctas_;
  config.splitShare = 1;
  if (windows_allowed_) allow_windows(config);
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const ncclResult_t status =
        ncclCommInitRankConfig(&comm, control_.size(), id, control_.rank(), &config);
    if (comm != nullptr) comms_.push_back(comm);
    check_nccl(status, comm, "connecting");
  }
  wait_until_queued(comm, [&] { return fmt::format("connecting {} ranks", control_.size()); });
  return comm;
}

ncclComm_t NcclJob::split(ncclComm_t parent, int color, int rank) {
  wait_until_ended();
  const auto describe = [] { return std::string("splitting a communicator"); };
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    check_nccl(ncclCommSplit(parent, color, rank, &splitting_, nullptr), parent, describe());
  }
  wait_until_queued(parent, describe);
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
  comms_.push_back(std::exchange(splitting_, nullptr));
  return comms_.back();
}

std::shared_ptr<const NcclWindow> NcclJob::register_window(ncclComm_t comm, std::int64_t bytes,
                                                           int ranks) {
  end_windows(Windows::unused);
  const auto window = std::make_shared<NcclWindow>(comm, bytes);
  const auto describe = [&] { return fmt::format("registering {} bytes", bytes); };
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    windows_.push_back(window);
    check_nccl(window->start_registration(), comm, describe());
  }
  wait_until_queued(comm, describe);
  window->find_peers(ranks);
  return window;
}

std::shared_ptr<const NcclWindow> NcclJob::window_of(ncclComm_t comm, const Tensor& x) {
  const std::lock_guard lock(mutex_);
  for (const auto& window : windows_) {
    if (window->comm() == comm && window->contains(x)) return window;
  }
  return nullptr;
}

void NcclJob::end_windows(Windows which) {
  wait_until_ended();
  std::vector<std::shared_ptr<NcclWindow>> ended;  // freed without the lock: that waits for the GPU
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
  for (auto& window : windows_) {
    if (which == Windows::unused && window.use_count() > 1) continue;
    check_nccl(window->deregister(), window->comm(), "ending a window");
    ended.push_back(std::move(window));
  }
  std::erase(windows_, nullptr);
}

void NcclJob::queue(ncclComm_t comm, const std::function<std::string()>& describe,
                    const std::function<void(const Take&)>& calls) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    NcclGroup group;
    calls([&](ncclResult_t status) { group.take(status); });
    check_nccl(group.end(), comm, describe());
  }
  wait_until_queued(comm, describe);
  if (is_capturing()) return watch_launches();
  const std::lock_guard lock(mutex_);
  under_way_.push_back({describe(), current_stream().record(), deadline_.clock().now()});
}

void NcclJob::watch_launches() {
  if (std::exchange(watched_capture_, current_capture()) == current_capture()) return;
  before_every_launch([this] { raise_if_failed(); });
  after_every_launch([this] {
    const std::lock_guard lock(mutex_);
    under_way_.push_back(
        {"the graph of a step", context().compute_stream().record(), deadline_.clock().now()});
  });
}

void NcclJob::wait_until_ended() {
  std::vector<Event> ends;
  {
    const std::lock_guard lock(mutex_);
    for (const UnderWay& call : under_way_) ends.push_back(call.end);
  }
  for (const Event& end : ends) end.synchronize();
}

void NcclJob::wait_until_queued(ncclComm_t comm, const std::function<std::string()>& describe) {
  const auto end = deadline_.end();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
      ncclResult_t state = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(comm, &state), comm, describe());
      check_nccl(state, comm, describe());
      if (state == ncclSuccess) return;
    }
    if (deadline_.clock().now() > end) {
      fail("waited {} ms in {} for other ranks to reach NCCL", deadline_.count(), describe());
    }
    std::this_thread::yield();
  }
}

std::optional<std::string> NcclJob::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclJob::raise_if_failed() {
  if (const auto reason = failure()) throw Error(*reason);
}

void NcclJob::fail_with(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = reason;
  abort_communicators();
  under_way_.clear();
}

void NcclJob::abort_communicators() {
  for (auto comm = comms_.rbegin(); comm != comms_.rend(); ++comm) ncclCommAbort(*comm);
  comms_.clear();
  // The abort of the parent has ended a split that was under way. It may have made the child.
  if (splitting_ != nullptr) ncclCommAbort(std::exchange(splitting_, nullptr));
}

void NcclJob::abort_all(const std::string& reason) {
  control_.abort(reason);
  fail_with(control_.aborted().value_or(reason));
}

std::optional<std::string> NcclJob::find_broken_link() {
  for (const ncclComm_t comm : comms_) {
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(comm, &state);
    if (state == ncclSuccess || state == ncclInProgress) continue;
    return fmt::format("NCCL: {}: {}", ncclGetErrorString(state), ncclGetLastError(comm));
  }
  return std::nullopt;
}

std::optional<std::string> NcclJob::find_overdue_call() {
  const auto now = deadline_.clock().now();
  const auto young = std::min<std::chrono::milliseconds>(kYoung, deadline_.length() / 2);
  for (auto call = under_way_.begin(); call != under_way_.end() && now - call->queued > young;) {
    if (call->end.complete()) {
      call = under_way_.erase(call);
    } else if (now - call->queued > deadline_.length()) {
      return fmt::format(
          "{}, was queued {} ms ago and has not ended on the GPU: another rank's GPU or the "
          "network has stopped, or sharding.timeout is too short",
          call->description, deadline_.count());
    } else {
      ++call;
    }
  }
  return std::nullopt;
}

std::optional<std::string> NcclJob::find_problem() {
  if (const auto reason = control_.aborted()) return reason;
  auto own = find_broken_link();
  if (!own) own = find_overdue_call();
  if (!own) return std::nullopt;
  return failure_of(control_.rank(), control_.size(), *own);
}

void NcclJob::watch() {
  cuda::select_device(device_.index);
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kWatchInterval, [&] { return end_; })) {
    if (failure_) continue;
    std::optional<std::string> reason;
    try {
      reason = find_problem();
    } catch (const std::exception& error) {  // the GPU has failed
      reason = failure_of(control_.rank(), control_.size(), error.what());
    }
    if (!reason) continue;
    lock.unlock();
    abort_all(*reason);
    lock.lock();
  }
}

void NcclJob::finish() {
  raise_if_failed();
  control_.barrier(context().compute_stream());
  end_windows(Windows::all);
  const auto describe = [] { return std::string("finalizing"); };
  for (;;) {
    ncclComm_t comm = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
      if (comms_.empty()) return;
      comm = comms_.back();  // a parent after those that were split off from it
      check_nccl(ncclCommFinalize(comm), comm, describe());
    }
    wait_until_queued(comm, describe);
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    check_nccl(ncclCommDestroy(comm), comm, describe());
    comms_.pop_back();
  }
}

}  // namespace tessera
