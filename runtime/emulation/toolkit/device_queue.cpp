#include "runtime/emulation/toolkit/device_queue.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "runtime/emulation/device/early.h"
#include "runtime/emulation/device/held.h"

namespace tessera::emulation {
namespace {

bool is_ready(const CUstream_st& stream) {
  return !stream.items.empty() &&
         (stream.items.front().wait == nullptr || stream.items.front().wait->passed);
}

void report_leaks() {
  const auto lock = Devices::get().lock();
  const std::string leaks = Devices::get().leaks();
  if (leaks.empty()) return;
  std::fprintf(stderr, "emulated device: the program ends without freeing %s\n", leaks.c_str());
  std::_Exit(1);
}

}  // namespace

// Never destroyed: static objects may free device memory after all other destructors.
Devices& Devices::get() {
  static Devices* const devices = [] {
    std::atexit(report_leaks);
    return new Devices;
  }();
  return *devices;
}

void Devices::set_options(const DeviceOptions& options, std::unique_lock<std::mutex>& lock) {
  for (int device = 0; device < options_.devices; ++device) synchronize_device(device, lock);
  if (options.capability != options_.capability) dynamic_bytes.clear();  // other limits
  peer_waits.unlink_all();
  options_ = options;
  random_ = 0;
  busiest_ = nullptr;
}

CUstream_st* Devices::make_stream(int device) {
  streams_.push_back(std::make_unique<CUstream_st>(CUstream_st{.device = device}));
  return streams_.back().get();
}

CUstream_st* Devices::take_lane(int device) {
  for (auto lane = idle_lanes_.begin(); lane != idle_lanes_.end(); ++lane) {
    CUstream_st* const found = *lane;
    if (found->device != device || !found->items.empty()) continue;
    idle_lanes_.erase(lane);
    return found;
  }
  CUstream_st* const lane = make_stream(device);
  lane->destroyed = true;  // for all that the program can see
  return lane;
}

CUevent_st* Devices::make_event(int device, bool timed) {
  events_.push_back(std::make_unique<CUevent_st>(CUevent_st{.device = device, .timed = timed}));
  return events_.back().get();
}

void Devices::enqueue(CUstream_st& stream, Item item) {
  if (item.pass) item.pass->stream = &stream;
  if (!failure(stream.device).empty()) {  // the work is dropped, and waits for it return
    if (item.pass) item.pass->passed = true;
    return;
  }
  stream.items.push_back(std::move(item));
  run_ahead();
  changed_.notify_all();
}

void Devices::run_until(const PointHandle& point, std::unique_lock<std::mutex>& lock) {
  while (!point->passed) {
    CUstream_st* const next =
        options_.progress == Progress::shuffled ? any_ready() : next_for(*point);
    if (next != nullptr) {
      run_first(*next);
    } else if (!point->passed) {
      memory.close();
      ++waiting_threads_;
      changed_.wait(lock);
      --waiting_threads_;
    }
  }
  memory.close();
  changed_.notify_all();
}

void Devices::synchronize(CUstream_st& stream, std::unique_lock<std::mutex>& lock) {
  const auto end = std::make_shared<Point>();
  enqueue(stream, {.pass = end});
  run_until(end, lock);
}

void Devices::synchronize_device(int device, std::unique_lock<std::mutex>& lock) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {  // others may make streams meanwhile
    CUstream_st& stream = *streams_[i];
    if (stream.device == device && !stream.items.empty()) synchronize(stream, lock);
  }
}

bool Devices::has_work(int device) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& stream) {
    return stream->device == device && !stream->items.empty();
  });
}

bool Devices::query(const PointHandle& point) {
  if (!point->passed && std::exchange(point->asked_for, true)) {
    if (CUstream_st* const next = next_for(*point)) run_first(*next);
    memory.close();
    changed_.notify_all();
  }
  return point->passed;
}

CUstream_st* Devices::next_for(const Point& point) {
  const Point* wanted = &point;
  for (std::size_t i = 0; i <= streams_.size(); ++i) {
    if (wanted->stream == nullptr) return nullptr;
    if (is_ready(*wanted->stream)) return wanted->stream;
    wanted = wanted->stream->items.front().wait.get();
  }
  fail(point.stream->device, "streams wait for one another: none can continue");
  return nullptr;
}

// Mostly the stream that ran last, so that streams get far ahead of each other.
CUstream_st* Devices::any_ready() {
  if (busiest_ != nullptr && is_ready(*busiest_) && draw(4) != 0) return busiest_;
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_) {
    if (is_ready(*stream)) ready.push_back(stream.get());
  }
  busiest_ = ready.empty() ? nullptr : ready[draw(ready.size())];
  return busiest_;
}

void Devices::run_ahead() {
  std::uint64_t items = 0;
  if (options_.progress == Progress::eager) items = UINT64_MAX;
  if (options_.progress == Progress::shuffled && draw(4) == 0) items = draw(8);
  if (items == 0) return;
  for (CUstream_st* next = any_ready(); next != nullptr && items > 0; next = any_ready(), --items) {
    run_first(*next);
  }
  memory.close();
}

void Devices::run_first(CUstream_st& stream) {
  Item item = std::move(stream.items.front());
  stream.items.pop_front();
  if (item.work) {
    memory.open(item.early ? 0 : item.devices, item.early);
    if (item.early) begin_early([&] { memory.open(item.devices); });
    hold_multiprocessors(held_on(stream.device));
    try {
      item.work();
    } catch (const std::exception& problem) {
      fail(stream.device, problem.what());
    }
    if (item.early) begin_early(nullptr);  // it may have failed before it began
  }
  if (item.pass) {
    item.pass->passed = true;
    item.pass->time = std::chrono::steady_clock::now() + stream.delay;
  }
}

unsigned Devices::held_on(int device) const {
  const auto found = collectives.find(device);
  return found == collectives.end() || found->second.empty() ? 0 : *found->second.rbegin();
}

void Devices::count_crowded(int device, std::int32_t multiprocessors) {
  const unsigned held = held_on(device);
  const int wanted = multiprocessors == 0 ? kMultiprocessors : multiprocessors;
  if (held > 0 && wanted + static_cast<int>(held) > kMultiprocessors) ++crowded_products;
}

/// As in CUDA, the device is lost with all its queued work.
void Devices::fail(int device, const std::string& why) {
  failures_.emplace(device, why);
  collectives[device].clear();
  for (const auto& stream : streams_) {
    if (stream->device != device) continue;
    for (const Item& item : stream->items) {
      if (item.pass) item.pass->passed = true;
    }
    stream->items.clear();
  }
}

std::string Devices::failure(int device) const {
  const auto found = failures_.find(device);
  return found == failures_.end() ? std::string() : found->second;
}

bool Devices::is_host_block(const void* data, std::size_t bytes) const {
  auto after = host_blocks_.upper_bound(data);
  if (after == host_blocks_.begin()) return false;
  const auto& [begin, size] = *--after;
  return static_cast<const std::byte*>(data) + bytes <= static_cast<const std::byte*>(begin) + size;
}

std::string Devices::leaks() const {
  std::string text;
  const auto add = [&](std::size_t count, const std::string& what) {
    if (count == 0) return;
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  std::size_t host_bytes = 0, streams = 0, events = 0;
  for (const auto& [data, bytes] : host_blocks_) host_bytes += bytes;
  for (const auto& stream : streams_) streams += !stream->destroyed;
  for (const auto& event : events_) events += !event->destroyed;
  add(memory.blocks(), "blocks of device memory (" + std::to_string(memory.bytes()) + " bytes)");
  add(host_blocks_.size(), "blocks of host memory (" + std::to_string(host_bytes) + " bytes)");
  add(streams, "streams");
  add(events, "events");
  add(graphs, "graphs");
  return text;
}

// Knuth's MMIX generator; its upper bits.
std::uint64_t Devices::draw(std::uint64_t below) {
  random_ = (random_ ^ options_.seed) * 6364136223846793005u + 1442695040888963407u;
  return (random_ >> 33) % below;
}

}  // namespace tessera::emulation
