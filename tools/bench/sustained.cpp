#include "tools/bench/sustained.h"

#include <chrono>
#include <optional>

#include "tools/bench/gpu_log.h"

namespace tessera {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Sustained sustain(const std::function<void()>& run, const std::function<void()>& finish,
                  double seconds, const std::string& gpu, const std::function<double()>& now) {
  constexpr double kSettling = 1.0;
  const double settled = now() + kSettling;
  while (now() < settled) run();
  finish();
  std::optional<GpuLog> log;
  if (!gpu.empty()) log.emplace(gpu);
  Sustained result;
  const double begin = now();
  do {
    run();
    result.runs += 1;
  } while (now() < begin + seconds);
  finish();
  result.seconds = now() - begin;
  if (!log) {
    result.reason = "no GPU";
    return result;
  }
  const GpuLog::Outcome outcome = log->stop();
  result.gpu = means_of(outcome.samples);
  result.reason = outcome.reason;
  return result;
}

}  // namespace tessera
