#include "runtime/emulation/toolkit/nccl_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/checks.h"
#include "runtime/emulation/toolkit/nccl_sums.h"
#include "runtime/error.h"

namespace tessera::emulation {
namespace {

using Bytes = std::vector<std::byte>;

void check_status(cudaError_t error) {
  if (error != cudaSuccess) throw Error(cudaGetErrorString(error));
}

/// The other sides' buffers that a rank reads, by rank.
std::vector<int> sources_of(const Operation& side, int rank, int ranks) {
  if (side.kind == Kind::message) {
    return side.from == nullptr ? std::vector{side.peer} : std::vector<int>{};
  }
  if (side.kind == Kind::broadcast) return {side.peer};
  if (side.kind == Kind::reduce && rank != side.peer) return {};
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}

bool is_sum(const Operation& side) {
  return side.kind == Kind::reduce_scatter || side.kind == Kind::all_reduce ||
         side.kind == Kind::reduce;
}

/// A rank's two halves of a call.
struct Halves {
  Call call;
  std::vector<int> sources;  // ranks that it reads
  std::vector<int> readers;  // ranks that read it
  std::vector<const std::byte*> from;
  std::vector<MemoryUse> uses{};
  unsigned read_devices = 0, write_devices = 0;

  /// Finds the memory that the halves touch.
  void find_memory_of(const CUstream_st& stream) {
    const std::size_t bytes = bytes_read_of_each(call.side);
    const auto find = [&](const void* data, std::size_t count) {
      Memory memory;
      check_status(find_memory(memory, data, count, "NCCL"));
      if (stream.capture != nullptr) uses.push_back(memory.use);
      return memory.devices;
    };
    for (const std::byte* data : from) read_devices |= find(data, bytes);
    if (from.empty()) return;
    const std::size_t parts = is_sum(call.side) ? 1 : from.size();
    write_devices = find(call.side.to, bytes * parts);
  }
};

Halves halves_of(const Call& call, int rank) {
  const auto& sides = call.rendezvous->sides;
  const int ranks = static_cast<int>(sides.size());
  Halves halves{.call = call, .sources = sources_of(call.side, rank, ranks)};
  const std::size_t part = bytes_read_of_each(call.side) * static_cast<std::size_t>(rank);
  for (const int r : halves.sources) {
    const void* theirs = sides[static_cast<std::size_t>(r)]->from;
    halves.from.push_back(static_cast<const std::byte*>(theirs) +
                          (call.side.kind == Kind::reduce_scatter ? part : 0));
  }
  for (int r = 0; r < ranks; ++r) {
    const auto& side = sides[static_cast<std::size_t>(r)];
    if (side == nullptr) continue;
    const std::vector<int> read = sources_of(*side, r, ranks);
    if (std::count(read.begin(), read.end(), rank) > 0) halves.readers.push_back(r);
  }
  return halves;
}

void list_bytes(std::size_t bytes) {
  list_launch({.kernel = "NCCL", .work = {.reads = whole(bytes), .writes = whole(bytes)}});
}

void read(const Halves& halves, std::vector<Bytes>& copies) {
  check_uses(halves.uses);
  const std::size_t bytes = bytes_read_of_each(halves.call.side);
  for (const std::byte* data : halves.from) copies.emplace_back(data, data + bytes);
  list_bytes(bytes * copies.size());
}

void write(const Halves& halves, std::vector<Bytes>& copies) {
  const Operation& side = halves.call.side;
  std::vector<std::byte*> places;
  for (Bytes& copy : copies) places.push_back(copy.data());
  if (is_sum(side)) {
    write_sum(side.to, places, side.count, side.type, side.operation);
  } else {
    auto* to = static_cast<std::byte*>(side.to);
    for (const Bytes& copy : copies) to = std::copy(copy.begin(), copy.end(), to);
  }
  copies.clear();
}

/// Waits only for the given ranks. A broadcast, for example, does not promise that all have arrived.
void add_waits(std::vector<Item>& items, const std::vector<int>& ranks,
               const std::vector<PointHandle>& points) {
  for (const int r : ranks) items.push_back({.wait = points[static_cast<std::size_t>(r)]});
}

using Group = std::shared_ptr<const std::vector<Halves>>;

/// One run of a group. All calls are ready before the first read, so a rank may send and receive.
std::vector<Item> items_of(const Group& group, int device,
                           const std::shared_ptr<Membership>& shared) {
  Membership& membership = *shared;
  if (membership.ended) {
    return {Item{.work = [] { throw Error("a graph uses a communicator that was destroyed"); }}};
  }
  const auto rank = static_cast<std::size_t>(membership.rank);
  const auto copies = std::make_shared<std::vector<std::vector<Bytes>>>(group->size());
  std::vector<std::shared_ptr<Run>> runs;
  std::vector<Item> items;
  std::erase_if(membership.runs, [](const auto& run) { return run.expired(); });
  for (const Halves& halves : *group) {
    runs.push_back(halves.call.rendezvous->next_run(membership.rank));
    membership.runs.push_back(runs.back());
    items.push_back({.pass = runs.back()->ready[rank]});
  }
  for (std::size_t i = 0; i < group->size(); ++i) {
    const Halves& halves = (*group)[i];
    add_waits(items, halves.sources, runs[i]->ready);
    const auto work = [=] { read((*group)[i], (*copies)[i]); };
    if (!halves.from.empty()) items.push_back({.work = work, .devices = halves.read_devices});
    items.push_back({.pass = runs[i]->read[rank]});
  }
  for (std::size_t i = 0; i < group->size(); ++i) {
    const Halves& halves = (*group)[i];
    add_waits(items, halves.readers, runs[i]->read);
    const auto work = [=] { write((*group)[i], (*copies)[i]); };
    if (!halves.from.empty()) items.push_back({.work = work, .devices = halves.write_devices});
  }
  Devices& devices = Devices::get();
  const bool by_copies = membership.options.copy_engines &&
                         std::all_of(group->begin(), group->end(), [](const Halves& halves) {
                           return halves.call.side.window != 0;
                         });
  const unsigned held =
      by_copies ? 0 : std::min(devices.nccl_model.multiprocessors, membership.options.most_blocks);
  devices.collectives[device].insert(held);
  ++membership.under_way;
  items.push_back({.work = [device, held, shared, &devices] {
    auto& all = devices.collectives[device];
    all.erase(all.find(held));
    --shared->under_way;
  }});
  return items;
}

}  // namespace

std::size_t bytes_read_of_each(const Operation& side) {
  return side.count * size_of(side.type);
}

void queue_exchange(const std::shared_ptr<Membership>& membership, int device,
                    const std::vector<Call>& calls) {
  const auto lock = Devices::get().lock();
  const cudaStream_t stream = calls.front().side.stream;
  check_status(check_work(stream));
  if (stream->device != device) throw Error("the stream belongs to another device");
  if (calls.front().side.captured) {
    if (stream->capture == nullptr) throw Error("the capture ended before NCCL recorded a call");
    stream->capture->late_calls -= static_cast<int>(calls.size());
  }
  const auto group = std::make_shared<std::vector<Halves>>();
  for (const Call& call : calls) {
    group->push_back(halves_of(call, membership->rank));
    group->back().find_memory_of(*stream);
  }
  submit(*stream, [=] { return items_of(group, device, membership); });
}

void leave(Membership& membership) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  membership.ended = true;
  for (const auto& weak : membership.runs) {
    const std::shared_ptr<Run> run = weak.lock();
    if (run == nullptr) continue;
    for (const auto* points : {&run->ready, &run->read}) {
      for (const PointHandle& point : *points) {
        if (point->stream == nullptr && !point->passed) devices.pass(*point);
      }
    }
  }
}

}  // namespace tessera::emulation
