// NCCL for threads of one process.
//
// Every communicator has its own thread. It waits for the other ranks' threads, then queues the
// operation on the stream of the call (nccl_exchange.h), or records it if the stream captures. The library's
// thread may be late. Here it records when the thread that made the call asks for the state, and a capture that
// ends before is invalid. To calls that wait for linked GPUs the operation is under way from the call on
// (peer_waits.h).
#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/nccl_comm.h"

using namespace tessera::emulation;

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

Call launch(ncclComm& comm, const Operation& side) {
  const bool message = side.kind == Kind::message, sends = side.from != nullptr;
  const int from = !message ? -1 : sends ? comm.rank : side.peer;
  const int to = !message ? -1 : sends ? side.peer : comm.rank;
  const std::uint64_t number = message ? comm.messages[{from, to}]++ : comm.collectives++;
  launch(comm, side, from, to, number);
  count_late(side, 1);
  return {side, comm.clique->rendezvous(from, to, number, message ? 2 : comm.clique->ranks())};
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

struct Group {
  int depth = 0;
  ncclResult_t first_error = ncclSuccess;
  std::map<ncclComm_t, std::vector<Operation>> operations;
};
thread_local Group group;

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
