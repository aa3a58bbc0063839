// The streams of the emulated devices, and which of their work runs when.
//
// A stream is a list of items: work, points that others may wait for, waits for others' points. The
// first item of a stream may run unless it is a wait for a point that has not been passed. Who runs
// it is whoever waits (Progress in toolkit/emulated_device.h), under one lock for all devices.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <emulated_device.h>

#include "runtime/emulation/toolkit/device_memory.h"

namespace tessera::emulation {

/// A place in a stream, as an event's: once per recording.
struct Point {
  CUstream_st* stream = nullptr;  // that comes past; null until it is queued there
  bool passed = false;
  bool asked_for = false;  // by a query, which gets no for an answer the first time
  std::chrono::steady_clock::time_point time;
};
using PointHandle = std::shared_ptr<Point>;

/// One of work, pass and wait is set.
struct Item {
  std::function<void()> work;
  unsigned devices = 0;  // whose memory the work may touch: a bit each
  PointHandle pass;
  PointHandle wait;
};

}  // namespace tessera::emulation

struct CUstream_st {
  int device;
  int priority = 0;
  bool destroyed = false;
  std::deque<tessera::emulation::Item> items;
};

struct CUevent_st {
  int device;
  bool timed;
  bool destroyed = false;
  tessera::emulation::PointHandle point;  // of the last recording
};

namespace tessera::emulation {

/// Everything that the emulated devices are. Except for get and lock, callers hold the lock.
class Devices {
 public:
  static Devices& get();
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  DeviceMemory memory;
  /// Dynamic shared memory that kernels asked for (cudaFuncSetAttribute), by device and kernel.
  std::map<std::pair<int, const void*>, std::size_t> dynamic_bytes;

  const DeviceOptions& options() const { return options_; }
  /// First runs all that was queued.
  void set_options(const DeviceOptions& options, std::unique_lock<std::mutex>& lock);

  CUstream_st* make_stream(int device);
  CUevent_st* make_event(int device, bool timed);

  void enqueue(CUstream_st& stream, Item item);
  /// Runs until the point has been passed, or its device has failed.
  void run_until(const PointHandle& point, std::unique_lock<std::mutex>& lock);
  /// Runs all that the stream (the device) has been given.
  void synchronize(CUstream_st& stream, std::unique_lock<std::mutex>& lock);
  void synchronize_device(int device, std::unique_lock<std::mutex>& lock);
  /// Has it been passed? Whoever asks again and again gets yes in the end.
  bool query(const PointHandle& point);

  /// What work on the device threw; empty if nothing.
  std::string failure(int device) const;
  /// Passes a point that no stream passes.
  void pass(Point& point) {
    point.passed = true;
    changed_.notify_all();
  }
  void forget_failures() { failures_.clear(); }

  std::string leaks() const;
  void host_block(const void* data, std::size_t bytes) { host_blocks_[data] = bytes; }
  bool forget_host_block(const void* data) { return host_blocks_.erase(data) == 1; }
  bool is_host_block(const void* data, std::size_t bytes) const;

 private:
  /// The stream whose first item must run before the point can be passed; null if that is for
  /// another thread to queue.
  CUstream_st* next_for(const Point& point);
  CUstream_st* any_ready();
  void run_first(CUstream_st& stream);
  void run_ahead();
  void fail(int device, const std::string& why);
  std::uint64_t draw(std::uint64_t below);

  std::mutex mutex_;
  std::condition_variable changed_;
  DeviceOptions options_;
  // Handles stay valid for good, so that the use of one that was destroyed is an error, not a
  // crash.
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::map<const void*, std::size_t> host_blocks_;
  std::map<int, std::string> failures_;
  std::uint64_t random_ = 0;
  CUstream_st* busiest_ = nullptr;
};

}  // namespace tessera::emulation
