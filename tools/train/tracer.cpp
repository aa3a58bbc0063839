#include "tools/train/tracer.h"

#include "runtime/context.h"
#include "runtime/error.h"
#include "sharding/comm/stream.h"
#include "tools/train/gather.h"

namespace tessera {

Tracer::Tracer(const TrainConfig& config, Communicator& world) : config_(config), world_(world) {
  // After the barrier all ranks read their clocks at the same moment.
  world.barrier(communication_stream()).synchronize();
  start_ = std::chrono::steady_clock::now();
}

void Tracer::start_step(std::int64_t step) const {
  context().profiler().set_tracing(!config_.trace.empty() && step > config_.steps - kSteps);
}

void Tracer::stop() const {
  context().profiler().set_tracing(false);
}

std::string Tracer::write() const {
  if (config_.trace.empty()) return {};
  const auto events = gather_texts(trace_events(context().profiler(), start_), world_);
  if (world_.rank() != 0) return {};
  try {
    write_chrome_trace(config_.trace.string(), events);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace tessera
