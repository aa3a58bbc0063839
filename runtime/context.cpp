#include "runtime/context.h"

#include <algorithm>

#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/cuda/backend.h"
#include "runtime/dry_gpu.h"

namespace tessera {
namespace {

thread_local RankContext* current_context_ = nullptr;
thread_local const Stream* current_stream_ = nullptr;

constexpr int kComputeStream = 0;

int threads_of(const ContextOptions& options) {
  check(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
        "rank {} of {}; expected at least 1 rank, and ranks from 0", options.rank,
        options.world_size);
  check(options.dry || options.device != kDryGpu, "device cpu:1 is for dry runs; use device 'cpu'");
  check(options.threads >= 0, "a rank has {} threads; expected 0 (a share of the machine) or more",
        options.threads);
  if (options.threads > 0) return options.threads;
  return std::max(1, available_threads() / options.world_size);
}

/// Makes `device` current on this thread. Raises Error if it is not available.
void select(const Device& device) {
  if (device.is_cpu()) return;
  if constexpr (kHasCuda) return cuda::select_device(device.index);
  fail("device {} is not available: this build has no CUDA backend; use device 'cpu'",
       to_string(device));
}

std::unique_ptr<MemorySource> memory_of(const ContextOptions& options) {
  const Device& device = options.device;
  select(device);
  if (options.dry) return addresses_only(Writable::no);
  if constexpr (kHasCuda) {
    if (!device.is_cpu()) return cuda::device_memory(device.index);
  }
  return host_memory();
}

/// Null on the CPU, which has no second kind of memory.
std::shared_ptr<Allocator> host_allocator_of(const ContextOptions& options) {
  if (options.device == kDryGpu) {
    return std::make_shared<Allocator>(Device{}, addresses_only(Writable::yes));
  }
  if constexpr (kHasCuda) {
    if (!options.device.is_cpu()) {
      // A dry run's host writes small values on their way to the GPU.
      return std::make_shared<Allocator>(
          Device{}, options.dry ? addresses_only(Writable::yes) : cuda::pinned_memory());
    }
  }
  return nullptr;
}

Stream compute_stream_of(const Device& device, StreamLog* log) {
  if constexpr (kHasCuda) {
    if (!device.is_cpu()) return cuda::make_stream("compute", kComputeStream);
  }
  if (log != nullptr) return make_logged_stream("compute", kComputeStream, *log);
  return Stream::inline_stream("compute", kComputeStream);
}

}  // namespace

RankContext::RankContext(const ContextOptions& options)
    : options_(options),
      stream_log_(options.dry ? std::make_unique<StreamLog>() : nullptr),
      allocator_(std::make_shared<Allocator>(options.device, memory_of(options))),
      host_allocator_(host_allocator_of(options)),
      threads_(threads_of(options), options.dry),
      profiler_(options.rank, stream_log_.get()),
      random_{.seed = options.seed},
      compute_stream_(compute_stream_of(options.device, stream_log_.get())) {
  if (host_allocator_ == nullptr) host_allocator_ = allocator_;
}

RankContext::~RankContext() {
  // The CPU's streams end with the work that they have. It may use the states.
  if (device().is_cpu()) side_streams_.clear();
}

const Stream& RankContext::side_stream(const std::string& name) {
  const std::lock_guard lock(side_streams_mutex_);
  const auto found = side_streams_.find(name);
  if (found != side_streams_.end()) return found->second;
  const int id = 1 + static_cast<int>(side_streams_.size());
  const auto make = [&] {
    if constexpr (kHasCuda) {
      if (!device().is_cpu()) return cuda::make_stream(name, id);
    }
    return is_dry() ? make_logged_stream(name, id, *stream_log_) : Stream::worker(name, id, this);
  };
  return side_streams_.emplace(name, make()).first->second;
}

RankContext& context() {
  check(current_context_ != nullptr,
        "this thread has no RankContext: make one and hold a ContextGuard on it");
  return *current_context_;
}

RankContext* context_or_null() {
  return current_context_;
}

const Stream& current_stream() {
  check(current_stream_ != nullptr,
        "this thread has no current stream: make a RankContext and hold a ContextGuard on it");
  return *current_stream_;
}

ContextGuard::ContextGuard(RankContext& context)
    : previous_context_(current_context_), previous_stream_(current_stream_) {
  select(context.device());
  current_context_ = &context;
  current_stream_ = &context.compute_stream();
}

ContextGuard::~ContextGuard() {
  if constexpr (kHasCuda) {
    if (previous_context_ != nullptr && !previous_context_->device().is_cpu()) {
      cuda::return_to_device(previous_context_->device().index);
    }
  }
  current_context_ = previous_context_;
  current_stream_ = previous_stream_;
}

StreamGuard::StreamGuard(const Stream& stream) : previous_stream_(current_stream_) {
  current_stream_ = &stream;
}

StreamGuard::~StreamGuard() {
  current_stream_ = previous_stream_;
}

}  // namespace tessera
