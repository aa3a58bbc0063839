#include "tools/train/step_profile.h"

#include <fmt/format.h>

#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "sharding/comm/stream.h"
#include "tools/pickle/writer.h"
#include "tools/train/gather.h"

namespace tessera {
namespace {

constexpr const char* kFolder = "profile";

}  // namespace

StepProfile::StepProfile(const TrainConfig& config, Communicator& world)
    : config_(config), world_(world) {
  // After the barrier all ranks read their clocks at the same moment.
  world.barrier(communication_stream()).synchronize();
  start_ = std::chrono::steady_clock::now();
}

StepProfile::~StepProfile() {
  if (recording_) take_blocks(context().allocator());
}

void StepProfile::start_step(std::int64_t step) {
  if (!config_.profile.contains(step)) return;
  if (!recording_) {
    recording_ = true;
    memory_.before = context().allocator().account();
    record_blocks(context().allocator(), true);
  }
  context().profiler().set_tracing(true);
  span_.emplace(fmt::format("step {}", step));
}

void StepProfile::end_step(std::int64_t step) {
  span_.reset();
  context().profiler().set_tracing(false);
  if (recording_ && step >= config_.profile.last) stop_recording();
}

void StepProfile::stop_recording() {
  memory_.events = take_blocks(context().allocator());
  recording_ = false;
  complete_ = true;
}

std::string StepProfile::write(bool run_has_ended) {
  if (recording_ && run_has_ended) stop_recording();
  if (!complete_) return {};
  complete_ = false;
  const auto traces = gather_texts(trace_events(context().profiler(), start_), world_);
  const auto snapshots = gather_texts(to_pickle(memory_snapshot(memory_)), world_);
  if (world_.rank() != 0) return {};
  try {
    const std::filesystem::path folder = config_.dir / kFolder;
    make_writable_directory(folder);
    write_chrome_trace((folder / "trace.json").string(), traces);
    for (std::size_t rank = 0; rank < snapshots.size(); ++rank) {
      write_file_atomically(folder / fmt::format("memory-rank-{}.pickle", rank), snapshots[rank]);
    }
    write_file_atomically(folder / "memory.json", memory_over_time(memory_).dump() + "\n");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace tessera
