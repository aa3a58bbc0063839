#include "tools/bench/stopwatch.h"

#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/measure/median.h"

namespace tessera {
namespace {

// The largest caches: 60 MB of L2 on an H200, some tens of MB of L3 in a CPU.
constexpr std::int64_t kCpuScratch = std::int64_t{128} << 20;
constexpr std::int64_t kGpuScratch = std::int64_t{512} << 20;

std::int64_t enough_to_flush() {
  return context().device().is_cpu() ? kCpuScratch : kGpuScratch;
}

}  // namespace

Stopwatch::Stopwatch(int runs, std::int64_t flushed_bytes)
    : runs_(runs),
      scratch_(Tensor::empty({flushed_bytes > 0 ? flushed_bytes : enough_to_flush()}, DType::u8)) {
  check(runs >= 1, "runs is {}; expected at least 1", runs);
}

double Stopwatch::median_ms(const std::function<void()>& run) const {
  constexpr int kWarmUps = 2;
  for (int i = 0; i < kWarmUps; ++i) run();
  std::vector<double> times;
  for (int i = 0; i < runs_; ++i) times.push_back(once_ms(run));
  return median(times);
}

double Stopwatch::once_ms(const std::function<void()>& run) const {
  scratch_.zero();
  const TimePoint begin = TimePoint::now();
  run();
  return milliseconds_between(begin, TimePoint::now());
}

}  // namespace tessera
