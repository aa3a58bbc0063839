// The streams of the emulated devices and the order in which their work runs.
//
// A stream is a list of items: work, points that others may wait for, and waits for others' points.
// The first item of a stream may run unless it is a wait for a point that has not been passed. The
// host thread that waits runs the items (Progress in toolkit/emulated_device.h), under one lock for
// all devices.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <emulated_device.h>

#include "runtime/emulation/toolkit/device_memory.h"
#include "runtime/emulation/toolkit/host_calls.h"
#include "runtime/emulation/toolkit/nccl_model.h"
#include "runtime/emulation/toolkit/nccl_windows.h"
#include "runtime/emulation/toolkit/peer_copies.h"
#include "runtime/emulation/toolkit/peer_waits.h"

namespace tessera::emulation {

/// A place in a stream. Every recording of an event makes one.
struct Point {
  CUstream_st* stream = nullptr;  // null until the point is queued
  bool passed = false;
  bool asked_for = false;  // a query has asked; the first answer is always no
  std::chrono::steady_clock::time_point time;
};
using PointHandle = std::shared_ptr<Point>;

struct Capture;

/// One of work, pass and wait is set.
struct Item {
  std::function<void()> work;
  unsigned devices = 0;  // bit i: the work may touch the memory of device i
  bool early = false;    // a launch that begins before the work ahead has ended (device/early.h)
  PointHandle pass;
  PointHandle wait;
};

}  // namespace tessera::emulation

struct CUstream_st {
  int device;
  int priority = 0;
  bool destroyed = false;
  std::deque<tessera::emulation::Item> items;
  std::chrono::nanoseconds delay{0};  // of its work so far: its events are that much later

  std::shared_ptr<tessera::emulation::Capture> capture;  // null: the stream does not capture
  std::size_t lane = 0;                                  // of the capture
  std::vector<CUgraphNode_st*> ends;                     // the next captured node follows these
};

struct CUevent_st {
  int device;
  bool timed;
  bool destroyed = false;
  tessera::emulation::PointHandle point;  // the last recording; null in a capture

  std::shared_ptr<tessera::emulation::Capture> capture;  // of the last recording, or null
  std::vector<CUgraphNode_st*> ends;                     // a stream that waits follows these
};

namespace tessera::emulation {

/// The multiprocessors of each device.
inline constexpr int kMultiprocessors = 4;

/// The state of all emulated devices. Callers hold the lock, except for get() and lock().
class Devices {
 public:
  static Devices& get();
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  DeviceMemory memory;
  /// Dynamic shared memory that kernels asked for (cudaFuncSetAttribute), by device and kernel.
  std::map<std::pair<int, const void*>, std::size_t> dynamic_bytes;

  HostCalls host_calls;

  PeerWaits peer_waits;
  NcclModel nccl_model;
  NcclWindows windows;
  /// The multiprocessors that collectives of NCCL hold which are queued and have not ended, by device.
  std::map<int, std::multiset<unsigned>> collectives;
  std::uint64_t crowded_products = 0;
  /// A product of cuBLASLt begins that counts on so many multiprocessors; 0: on all.
  void count_crowded(int device, std::int32_t multiprocessors);

  /// Captures under way.
  std::vector<std::shared_ptr<Capture>> captures;
  /// Graphs and executable graphs that were not destroyed.
  std::size_t graphs = 0;

  /// Where copies between devices are listed, if they are.
  std::vector<PeerCopy>* peer_copies = nullptr;

  const DeviceOptions& options() const { return options_; }
  /// Runs all queued work first.
  void set_options(const DeviceOptions& options, std::unique_lock<std::mutex>& lock);

  /// Whether the device has work that was not carried out.
  bool has_work(int device) const;

  CUstream_st* make_stream(int device);
  /// A stream that the program has no handle of, for a graph's work. It is given back when idle or
  /// about to be.
  CUstream_st* take_lane(int device);
  void give_back_lane(CUstream_st* lane) { idle_lanes_.push_back(lane); }
  CUevent_st* make_event(int device, bool timed);

  void enqueue(CUstream_st& stream, Item item);
  /// Runs until the point has been passed, or its device has failed.
  void run_until(const PointHandle& point, std::unique_lock<std::mutex>& lock);
  /// Runs all work of the stream (of the device).
  void synchronize(CUstream_st& stream, std::unique_lock<std::mutex>& lock);
  void synchronize_device(int device, std::unique_lock<std::mutex>& lock);
  /// Has the point been passed? Repeated queries make progress, so the answer is yes in the end.
  bool query(const PointHandle& point);

  /// The message of the exception that failed the device; empty if it has not failed.
  std::string failure(int device) const;
  /// Passes a point that no stream passes.
  void pass(Point& point) {
    point.passed = true;
    changed_.notify_all();
  }
  void forget_failures() { failures_.clear(); }
  int waiting_threads() const { return waiting_threads_; }

  std::string leaks() const;
  void host_block(const void* data, std::size_t bytes) { host_blocks_[data] = bytes; }
  bool forget_host_block(const void* data) { return host_blocks_.erase(data) == 1; }
  bool is_host_block(const void* data, std::size_t bytes) const;

 private:
  /// Multiprocessors that a collective holds.
  unsigned held_on(int device) const;
  /// The first item of this stream must run before the point can be passed; null if another host
  /// thread has still to queue the point.
  CUstream_st* next_for(const Point& point);
  CUstream_st* any_ready();
  void run_first(CUstream_st& stream);
  void run_ahead();
  void fail(int device, const std::string& why);
  std::uint64_t draw(std::uint64_t below);

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_threads_ = 0;
  DeviceOptions options_;
  // Handles are never freed, so the use of a destroyed one is an error and not a crash.
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::vector<CUstream_st*> idle_lanes_;
  std::map<const void*, std::size_t> host_blocks_;
  std::map<int, std::string> failures_;
  std::uint64_t random_ = 0;
  CUstream_st* busiest_ = nullptr;
};

}  // namespace tessera::emulation
