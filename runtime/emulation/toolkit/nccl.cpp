// NCCL for threads of one process.
//
// Every communicator has its own thread. It waits for the other ranks' threads, then queues the
// operation on the stream of the call (nccl_exchange.h), or records it if the stream captures. The library's
// thread may be late. Here it records when the thread that made the call asks for the state, and a capture that
// ends before is invalid. To calls that wait for linked GPUs the operation is under way from the call on
// (peer_waits.h).
#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include <emulated_device.h>
#include <nccl_device.h>

#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/emulation/toolkit/nccl_exchange.h"
#include "runtime/emulation/toolkit/nccl_faults.h"

namespace {

using tessera::emulation::bytes_read_of_each;
using tessera::emulation::Call;
using tessera::emulation::Clique;
using tessera::emulation::CliqueOptions;
using tessera::emulation::Devices;
using tessera::emulation::Kind;
using tessera::emulation::Membership;
using tessera::emulation::Operation;
using tessera::emulation::PeerWaits;

thread_local std::string last_error;

std::atomic<bool> never_queued = false;
std::atomic<bool> never_ends = false;
std::atomic<std::uint64_t> resources = 0;

ncclResult_t refuse(ncclResult_t why, const std::string& text) {
  last_error = text;
  return why;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
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
  std::shared_ptr<Membership> membership = std::make_shared<Membership>();
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

namespace {

// ---- Execution of a group

const char* name_of(const Operation& side) {
  switch (side.kind) {
    case Kind::all_gather:
      return "ncclAllGather";
    case Kind::reduce_scatter:
      return "ncclReduceScatter";
    case Kind::all_reduce:
      return "ncclAllReduce";
    case Kind::reduce:
      return "ncclReduce";
    case Kind::broadcast:
      return "ncclBroadcast";
    case Kind::message:
      return side.from != nullptr ? "ncclSend" : "ncclRecv";
    case Kind::split:
      return "ncclCommSplit";
    case Kind::window:
      return "ncclCommWindowRegister";
  }
  return "";
}

/// The operation is under way on this rank's device, and counts as a call of the host.
void launch(const ncclComm& comm, const Operation& side, int from, int to, std::uint64_t number) {
  std::vector<int> others;
  for (int r = 0; r < comm.clique->ranks(); ++r) {
    const bool takes_part = side.kind != Kind::message || r == from || r == to;
    if (r != comm.rank && takes_part) others.push_back(comm.clique->device_of(r));
  }
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  ++devices.host_calls.collectives;
  if (side.captured) return;
  const std::string call = std::string(name_of(side)) + " of rank " + std::to_string(comm.rank);
  devices.peer_waits.launch({comm.clique.get(), from, to, number}, {comm.device, call}, others);
}

/// Adds to the calls of the stream's capture that are not recorded yet.
void count_late(const Operation& side, int calls) {
  const auto lock = Devices::get().lock();
  if (side.captured && side.stream->capture != nullptr) side.stream->capture->late_calls += calls;
}

Call launch(ncclComm& comm, const Operation& side) {
  const bool message = side.kind == Kind::message, sends = side.from != nullptr;
  const int from = !message ? -1 : sends ? comm.rank : side.peer;
  const int to = !message ? -1 : sends ? side.peer : comm.rank;
  const std::uint64_t number = message ? comm.messages[{from, to}]++ : comm.collectives++;
  launch(comm, side, from, to, number);
  count_late(side, 1);
  return {side, comm.clique->rendezvous(from, to, number, message ? 2 : comm.clique->ranks())};
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

/// Waits until all ranks are there. False if the communicator was aborted or the ranks disagree.
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

void carry_out(ncclComm& comm, const std::vector<Call>& calls) {
  if (never_queued) return comm.clique->wait_for_abort(comm.leave);
  const Operation& first = calls.front().side;
  if (never_ends) comm.gate.stop(first.stream);
  if (!meet(comm, calls)) return;
  if (first.captured && !comm.clique->wait_until(comm.asked, comm.leave)) return;
  queue_exchange(comm.membership, comm.device, calls);
  comm.set_state(ncclSuccess);
}

// ---- Communicators and groups

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques;
std::set<ncclComm*> live;

bool is_live(ncclComm_t comm) {
  const std::lock_guard lock(registry_mutex);
  return live.count(comm) == 1;
}

bool is_busy(const ncclComm& comm) {
  const auto lock = Devices::get().lock();
  return comm.membership->under_way > 0;
}

struct Group {
  int depth = 0;
  ncclResult_t first_error = ncclSuccess;
  std::map<ncclComm_t, std::vector<Operation>> operations;
};
thread_local Group group;

ncclResult_t check_comm(ncclComm_t comm) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "there is no such communicator");
  if (comm->finalized) return refuse(ncclInvalidUsage, "the communicator has been finalized");
  const ncclResult_t state = comm->current_state();
  if (state == ncclSuccess) return state;
  return refuse(ncclInvalidUsage,
                "the communicator is busy or has failed: ask for its state first");
}

/// Do the two buffers lie as the call allows: at the documented offset, or disjoint?
bool in_place_or_apart(const Operation& side, int rank, int ranks) {
  if (side.from == nullptr || side.to == nullptr || side.kind == Kind::message) return true;
  const auto from = reinterpret_cast<std::uintptr_t>(side.from);
  const auto to = reinterpret_cast<std::uintptr_t>(side.to);
  const std::size_t part = bytes_read_of_each(side), all = part * static_cast<std::size_t>(ranks);
  const std::size_t offset = part * static_cast<std::size_t>(rank);
  const std::size_t from_bytes = side.kind == Kind::reduce_scatter ? all : part;
  const std::size_t to_bytes = side.kind == Kind::all_gather ? all : part;
  if (side.kind == Kind::all_gather && from == to + offset) return true;
  if (side.kind == Kind::reduce_scatter && to == from + offset) return true;
  const bool other = side.kind != Kind::all_gather && side.kind != Kind::reduce_scatter;
  if (other && from == to) return true;
  return from + from_bytes <= to || to + to_bytes <= from;
}

ncclResult_t check_operation(ncclComm_t comm, const Operation& side) {
  if (const ncclResult_t status = check_comm(comm); status != ncclSuccess) return status;
  const int ranks = comm->clique->ranks();
  const bool message = side.kind == Kind::message;
  if (side.peer < 0 || side.peer >= ranks || (message && side.peer == comm->rank)) {
    return refuse(ncclInvalidArgument, "there is no such peer or root");
  }
  const bool has_buffers = message ? side.from != nullptr || side.to != nullptr
                                   : side.from != nullptr && side.to != nullptr;
  if (side.count > 0 && !has_buffers) return refuse(ncclInvalidArgument, "a buffer is null");
  if (side.operation != ncclSum && side.operation != ncclMax) {
    return refuse(ncclInvalidArgument, "there is no such reduction");
  }
  if (!in_place_or_apart(side, comm->rank, ranks)) {
    return refuse(ncclInvalidUsage, "the buffers overlap and are not in place");
  }
  for (const Operation& earlier : group.operations[comm]) {
    if (earlier.stream != side.stream) return refuse(ncclInvalidUsage, "a group on two streams");
  }
  return ncclSuccess;
}

Operation as_queued(const ncclComm& comm, Operation side) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  side.captured = side.stream != nullptr && side.stream->capture != nullptr;
  if (side.kind != Kind::all_gather) return side;
  const std::size_t part = bytes_read_of_each(side);
  const std::size_t whole = part * static_cast<std::size_t>(comm.clique->ranks());
  const auto rank = static_cast<std::size_t>(comm.rank);
  const ncclWindow_t window = devices.windows.find(comm.clique.get(), rank, side.to, whole);
  if (window == nullptr ||
      devices.windows.find(comm.clique.get(), rank, side.from, part) == nullptr) {
    return side;
  }
  side.window = window->number;
  side.offset = static_cast<std::byte*>(side.to) - window->addresses[rank];
  return side;
}

ncclResult_t add(ncclComm_t comm, const Operation& side) {
  ncclGroupStart();
  ncclResult_t status = check_operation(comm, side);
  if (status == ncclSuccess) {
    if (side.count > 0) group.operations[comm].push_back(as_queued(*comm, side));
  } else if (group.first_error == ncclSuccess) {
    group.first_error = status;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return status != ncclSuccess ? status : ended;
}

}  // namespace

void tessera::emulation::set_nccl_faults(const NcclFaults& faults) {
  never_queued = faults.never_queued;
  never_ends = faults.never_ends;
}

tessera::emulation::NcclModel tessera::emulation::nccl_model() {
  const auto lock = Devices::get().lock();
  return Devices::get().nccl_model;
}

void tessera::emulation::set_nccl_model(const NcclModel& model) {
  const auto lock = Devices::get().lock();
  Devices::get().nccl_model = model;
}

std::uint64_t tessera::emulation::crowded_products() {
  const auto lock = Devices::get().lock();
  return Devices::get().crowded_products;
}

std::uint64_t tessera::emulation::nccl_resources() {
  return resources;
}

void tessera::emulation::break_nccl_links(const std::string& why) {
  const std::lock_guard lock(registry_mutex);
  for (ncclComm* const comm : live) comm->set_state(ncclRemoteError, why);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::move(group);
  group = {};
  if (ended.first_error != ncclSuccess) return ended.first_error;
  bool any = false;
  for (const auto& [comm, operations] : ended.operations) {
    if (operations.empty()) continue;
    any = true;
    std::vector<Call> calls;
    for (const Operation& side : operations) calls.push_back(launch(*comm, side));
    comm->start([comm = comm, calls] { carry_out(*comm, calls); });
  }
  return any ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::uint64_t made = 0;
  const std::lock_guard lock(registry_mutex);
  *id = {};
  const std::string name = "clique " + std::to_string(++made);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

namespace {

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

namespace {

/// On the communicator's thread.
void carry_out_registration(ncclComm& comm, const Call& call, std::uint64_t number,
                            ncclWindow_t* window) {
  if (never_queued) return comm.clique->wait_for_abort(comm.leave);
  if (!meet(comm, {call})) return;
  Devices& devices = Devices::get();
  const int ranks = comm.clique->ranks();
  ncclWindow_vidmem made = {.clique = comm.clique.get(),
                            .number = number,
                            .device = comm.device,
                            .bytes = call.side.count,
                            .rank = static_cast<std::size_t>(comm.rank),
                            .reach = ncclTeamLsa(&comm).nRanks};
  for (int r = 0; r < ranks; ++r) {
    const auto& side = call.rendezvous->sides[static_cast<std::size_t>(r)];
    made.addresses.push_back(static_cast<std::byte*>(side->to));
    made.devices.push_back(comm.clique->device_of(r));
  }
  {
    const auto lock = devices.lock();
    if (devices.nccl_model.lsa_ranks < 0) made.reach = 0;
    *window = devices.windows.add(std::move(made));
  }
  comm.set_state(ncclSuccess);
}

}  // namespace

ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  const int model = tessera::emulation::nccl_model().lsa_ranks, ranks = comm->clique->ranks();
  const int team = model > 0 && ranks % model == 0 ? model : ranks;
  return {.nRanks = team, .rank = comm->rank % team, .stride = 1};
}

ncclResult_t ncclMemFree(void* data) {
  Devices& devices = Devices::get();
  {
    const auto lock = devices.lock();
    if (!devices.windows.is_memory(data)) {
      return refuse(ncclInvalidArgument, "the memory is not of ncclMemAlloc");
    }
    if (devices.windows.has_window(data)) {
      return refuse(ncclInvalidUsage, "the memory is registered");
    }
    if (devices.has_work(devices.memory.find(data)->device)) {
      return refuse(ncclInvalidUsage, "the memory's device has work");
    }
    devices.windows.forget_memory(data);
  }
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  if (const ncclResult_t status = check_comm(comm); status != ncclSuccess) return status;
  Clique& clique = *comm->clique;
  {
    Devices& devices = Devices::get();
    const auto lock = devices.lock();
    const auto* const block = devices.memory.find(data);
    if (block == nullptr || !devices.windows.is_memory(block->data) ||
        static_cast<std::byte*>(data) + bytes > block->data + block->bytes) {
      return refuse(ncclInvalidArgument, "the memory is not of ncclMemAlloc");
    }
    if (flags != NCCL_WIN_COLL_SYMMETRIC) {
      return refuse(ncclInvalidArgument, "windows that are not symmetric are not emulated");
    }
    if (devices.windows.has_window(&clique, static_cast<std::size_t>(comm->rank), data, bytes)) {
      return refuse(ncclInvalidUsage, "the memory is registered already");
    }
  }
  *window = nullptr;
  const std::uint64_t number = comm->collectives++;
  const Call call{{.kind = Kind::window, .to = data, .count = bytes},
                  clique.rendezvous(-1, -1, number, clique.ranks())};
  comm->start([=] { carry_out_registration(*comm, call, number + 1, window); });
  return ncclInProgress;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (const ncclResult_t status = check_comm(comm); status != ncclSuccess) return status;
  if (is_busy(*comm)) return refuse(ncclInvalidUsage, "calls of the communicator have not ended");
  const auto lock = Devices::get().lock();
  auto& windows = Devices::get().windows;
  if (!windows.is_live(window) || window->clique != comm->clique.get() ||
      window->rank != static_cast<std::size_t>(comm->rank)) {
    return refuse(ncclInvalidArgument, "the communicator has no such window");
  }
  windows.end(window);
  return ncclSuccess;
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

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::all_gather, from, to, count, type, ncclSum, 0, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::reduce_scatter, from, to, count, type, operation, 0, stream});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::all_reduce, from, to, count, type, operation, 0, stream});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::reduce, from, to, count, type, operation, root, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::broadcast, from, to, count, type, ncclSum, root, stream});
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::message, from, nullptr, count, type, ncclSum, peer, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, {Kind::message, nullptr, to, count, type, ncclSum, peer, stream});
}
