// Communicators of the emulated NCCL: their beginning, their state, and their end.
#include "runtime/emulation/toolkit/nccl_comm.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/emulation/toolkit/nccl_faults.h"

namespace tessera::emulation {
namespace {

thread_local std::string last_error;
std::atomic<std::uint64_t> resources = 0;
std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques;
std::set<ncclComm*> live;

/// A communicator of a clique, which lists it as alive.
ncclComm* make_comm(const std::shared_ptr<Clique>& clique, int rank) {
  auto* const made = new ncclComm;
  made->clique = clique;
  made->rank = rank;
  made->membership->rank = rank;
  made->membership->options = clique->options();
  cudaGetDevice(&made->device);
  const std::lock_guard lock(registry_mutex);
  live.insert(made);
  return made;
}

bool agree(const Call& call) {
  for (const auto& other : call.rendezvous->sides) {
    if (other == nullptr) continue;
    const Operation& mine = call.side;
    const bool message = mine.kind == Kind::message;
    if (other->kind != mine.kind || other->count != mine.count || other->type != mine.type ||
        other->operation != mine.operation || other->captured != mine.captured ||
        other->window != mine.window || other->offset != mine.offset ||
        (!message && other->peer != mine.peer)) {
      return false;
    }
  }
  return true;
}

}  // namespace

ncclResult_t refuse(ncclResult_t why, const std::string& text) {
  last_error = text;
  return why;
}

bool is_live(ncclComm_t comm) {
  const std::lock_guard lock(registry_mutex);
  return live.count(comm) == 1;
}

bool is_busy(const ncclComm& comm) {
  const auto lock = Devices::get().lock();
  return comm.membership->under_way > 0;
}

ncclResult_t check_comm(ncclComm_t comm) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  if (comm->finalized) return refuse(ncclInvalidUsage, "the communicator has been finalized");
  const ncclResult_t state = comm->current_state();
  if (state == ncclSuccess) return state;
  return refuse(ncclInvalidUsage,
                "the communicator is busy or has failed: ask for its state first");
}

void count_late(const Operation& side, int calls) {
  const auto lock = Devices::get().lock();
  if (side.captured && side.stream->capture != nullptr) side.stream->capture->late_calls += calls;
}

bool meet(ncclComm& comm, const std::vector<Call>& calls) {
  for (const Call& call : calls) comm.clique->arrive(*call.rendezvous, comm.rank, call.side);
  for (const Call& call : calls) {
    if (!comm.clique->wait_until_all_arrived(*call.rendezvous, comm.leave)) return false;
  }
  if (std::all_of(calls.begin(), calls.end(), agree)) return true;
  for (const Call& call : calls) count_late(call.side, -1);
  comm.set_state(ncclInvalidUsage, "ranks disagree about a call");
  return false;
}

void set_nccl_faults(const NcclFaults& faults) {
  never_queued = faults.never_queued;
  never_ends = faults.never_ends;
}

NcclModel nccl_model() {
  const auto lock = Devices::get().lock();
  return Devices::get().nccl_model;
}

void set_nccl_model(const NcclModel& model) {
  const auto lock = Devices::get().lock();
  Devices::get().nccl_model = model;
}

std::uint64_t crowded_products() {
  const auto lock = Devices::get().lock();
  return Devices::get().crowded_products;
}

std::uint64_t nccl_resources() {
  return resources;
}

void break_nccl_links(const std::string& why) {
  const std::lock_guard lock(registry_mutex);
  for (ncclComm* const comm : live) comm->set_state(ncclRemoteError, why);
}

}  // namespace tessera::emulation

using namespace tessera::emulation;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::uint64_t made = 0;
  const std::lock_guard lock(registry_mutex);
  *id = {};
  const std::string name = "clique " + std::to_string(++made);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

namespace {

/// On the parent's thread.
void carry_out_split(ncclComm& parent, const Call& call, ncclComm_t* child) {
  if (never_queued) return parent.clique->wait_for_abort(parent.leave);
  if (!meet(parent, {call})) return;
  if (call.side.color != NCCL_SPLIT_NOCOLOR) {
    const auto [group, rank] = parent.clique->group_after(*call.rendezvous, parent.rank);
    ncclComm* const made = make_comm(group, rank);
    made->shares = parent.shares;
    if (!parent.shares) ++resources;
    made->set_state(ncclSuccess);
    *child = made;
  }
  parent.set_state(ncclSuccess);
}

}  // namespace

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) {
    return refuse(ncclInvalidUsage, "blocking communicators are not emulated");
  }
  if (rank < 0 || rank >= ranks) return refuse(ncclInvalidArgument, "there is no such rank");
  constexpr int kMostChannels = 64;  // of the library
  const int most = config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? kMostChannels : config->maxCTAs;
  if (most < 1) return refuse(ncclInvalidArgument, "maxCTAs is below 1");
  const CliqueOptions options = {.most_blocks = static_cast<unsigned>(most),
                                 .copy_engines = config->CTAPolicy == NCCL_CTA_POLICY_ZERO};
  std::shared_ptr<Clique> clique;
  {
    const std::lock_guard lock(registry_mutex);
    auto& found = cliques[id.internal];
    if (found == nullptr) found = std::make_shared<Clique>(ranks, options);
    clique = found;
  }
  if (clique->ranks() != ranks || !(clique->options() == options)) {
    return refuse(ncclInvalidArgument, "ranks disagree about the number of ranks, or of CTAs");
  }
  ncclComm* const made = make_comm(clique, rank);
  made->shares = config->splitShare == 1;
  ++resources;
  *comm = made;
  made->start([made] {
    if (!made->clique->connect(made->rank, made->device, made->leave)) return;
    const bool duplicate = made->clique->duplicate_device();
    made->set_state(duplicate ? ncclInvalidUsage : ncclSuccess, "two ranks have one GPU");
  });
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  if (const ncclResult_t status = check_comm(comm); status != ncclSuccess) return status;
  if (config != nullptr) return refuse(ncclInvalidUsage, "a child's configuration is not emulated");
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return refuse(ncclInvalidArgument, "the color is negative");
  }
  if (is_busy(*comm)) return refuse(ncclInvalidUsage, "calls of the communicator have not ended");
  *child = nullptr;
  Clique& clique = *comm->clique;
  const Call call{{.kind = Kind::split, .color = color, .key = key},
                  clique.rendezvous(-1, -1, comm->collectives++, clique.ranks())};
  comm->start([=] { carry_out_split(*comm, call, child); });
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  if (comm->is_caller()) comm->clique->set(comm->asked);
  *state = comm->current_state();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t status = check_comm(comm); status != ncclSuccess) return status;
  {
    Devices& devices = Devices::get();
    const auto lock = devices.lock();
    if (devices.windows.has_windows(comm->clique.get(), static_cast<std::size_t>(comm->rank))) {
      return refuse(ncclInvalidUsage, "windows of the communicator are registered");
    }
  }
  comm->finalized = true;
  comm->start([comm] {
    cudaDeviceSynchronize();
    if (comm->clique->finalize(comm->leave)) comm->set_state(ncclSuccess);
  });
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  if (!comm->finalized || comm->current_state() != ncclSuccess) {
    return refuse(ncclInvalidUsage, "the communicator has not been finalized");
  }
  return ncclCommAbort(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(registry_mutex);
    if (live.erase(comm) == 0) return refuse(ncclInvalidArgument, "there is no such communicator");
  }
  comm->clique->set(comm->leave);
  {
    Devices& devices = Devices::get();
    const auto lock = devices.lock();
    devices.peer_waits.forget(comm->clique.get());
    devices.windows.end_all(comm->clique.get(), static_cast<std::size_t>(comm->rank));
  }
  comm->gate.open();
  leave(*comm->membership);
  if (comm->worker.joinable()) comm->worker.join();
  delete comm;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (is_live(comm)) {
    const std::lock_guard lock(comm->mutex);
    if (!comm->error.empty()) last_error = comm->error;
  }
  return last_error.c_str();
}
