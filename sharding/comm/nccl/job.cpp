#include "sharding/comm/nccl/job.h"

#include <cstring>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

/// Rank 0 of the group invents a name under which its ranks find each other.
ncclUniqueId agree_on_id(Communicator& group) {
  ncclUniqueId id{};
  std::vector<std::uint8_t> bytes(sizeof(id), 0);
  if (group.rank() == 0) {
    const ncclResult_t status = ncclGetUniqueId(&id);
    check(status == ncclSuccess, "ncclGetUniqueId: {}", ncclGetErrorString(status));
    std::memcpy(bytes.data(), &id, sizeof(id));
  }
  const Tensor shared = Tensor::from(bytes, {static_cast<std::int64_t>(bytes.size())});
  group.broadcast({shared}, 0, context().compute_stream(), "NCCL's id");
  std::memcpy(&id, shared.to_vector<std::uint8_t>().data(), sizeof(id));
  return id;
}

}  // namespace

NcclJob::NcclJob(Communicator& control, std::chrono::milliseconds deadline)
    : control_(control), deadline_(deadline), device_(context().device()) {
  check(!device_.is_cpu(),
        "communicator nccl is for ranks on GPUs, not on the CPU: take threads or "
        "mpi");
  watcher_ = std::thread([this] { watch(); });
}

NcclJob::~NcclJob() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  watcher_.join();
  for (const ncclComm_t comm : comms_) ncclCommAbort(comm);
}

void NcclJob::check_nccl(ncclResult_t status, ncclComm_t comm, const std::string& what) const {
  if (status == ncclSuccess || status == ncclInProgress) return;
  const std::string more = ncclGetLastError(comm);
  fail("NCCL: {}: {}{}{}", what, ncclGetErrorString(status), more.empty() ? "" : ": ", more);
}

ncclComm_t NcclJob::connect(Communicator& group) {
  ncclUniqueId id = agree_on_id(group);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const ncclResult_t status =
        ncclCommInitRankConfig(&comm, group.size(), id, group.rank(), &config);
    if (comm != nullptr) comms_.push_back(comm);
    check_nccl(status, comm, "connecting");
  }
  wait_until_done(comm, [&] { return fmt::format("connecting {} ranks", group.size()); });
  return comm;
}

void NcclJob::queue(ncclComm_t comm, const std::function<std::string()>& what,
                    const std::function<void(const Take&)>& calls) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    // The group ends whatever happens within.
    ncclResult_t first = ncclGroupStart();
    const auto take = [&](ncclResult_t status) {
      if (first == ncclSuccess || first == ncclInProgress) first = status;
    };
    calls(take);
    take(ncclGroupEnd());
    check_nccl(first, comm, what());
  }
  wait_until_done(comm, what);
}

void NcclJob::wait_until_done(ncclComm_t comm, const std::function<std::string()>& what) {
  const auto end = Clock::now() + deadline_;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
      ncclResult_t state = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(comm, &state), comm, what());
      check_nccl(state, comm, what());
      if (state == ncclSuccess) return;
    }
    if (Clock::now() > end) {
      fail("rank {} waited {} ms in {} for other ranks to come to NCCL", control_.rank(),
           deadline_.count(), what());
    }
    std::this_thread::yield();
  }
}

void NcclJob::raise_if_failed() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

void NcclJob::fail_with(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = reason;
  for (const ncclComm_t comm : comms_) ncclCommAbort(comm);
  comms_.clear();
}

void NcclJob::watch() {
  cuda::select_device(device_.index);
  const auto problem = [&]() -> std::optional<std::string> {
    if (const auto reason = control_.aborted()) return reason;
    for (const ncclComm_t comm : comms_) {
      ncclResult_t state = ncclSuccess;
      ncclCommGetAsyncError(comm, &state);
      if (state == ncclSuccess || state == ncclInProgress) continue;
      return failure_of(
          control_.rank(), control_.size(),
          fmt::format("NCCL: {}: {}", ncclGetErrorString(state), ncclGetLastError(comm)));
    }
    return std::nullopt;
  };
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kBetweenLooks, [&] { return end_; })) {
    const auto reason = problem();
    if (!reason || failure_) continue;
    lock.unlock();
    control_.abort(*reason);
    fail_with(*reason);
    lock.lock();
  }
}

void NcclJob::finish() {
  raise_if_failed();
  control_.barrier(context().compute_stream());
  for (;;) {
    ncclComm_t comm = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw Error(*failure_);
      if (comms_.empty()) return;
      comm = comms_.front();
      check_nccl(ncclCommFinalize(comm), comm, "taking leave");
    }
    wait_until_done(comm, [] { return std::string("taking leave"); });
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
    check_nccl(ncclCommDestroy(comm), comm, "taking leave");
    comms_.erase(comms_.begin());
  }
}

}  // namespace tessera
