#include "tools/bench/stopwatch.h"

#include <chrono>

#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/bench/workload.h"
#if defined(TESSERA_CUDA)
#include "runtime/cuda/timer.h"
#endif

namespace tessera {
namespace {

// The largest caches: 60 MB of L2 on an H200, some tens of MB of L3 beside a CPU's cores.
constexpr std::int64_t kCpuScratch = std::int64_t{128} << 20;
constexpr std::int64_t kGpuScratch = std::int64_t{512} << 20;

}  // namespace

Stopwatch::Stopwatch(int runs)
    : runs_(runs),
      scratch_(
          Tensor::empty({context().device().is_cpu() ? kCpuScratch : kGpuScratch}, DType::u8)) {
  check(runs >= 1, "a median of {} runs does not exist", runs);
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
#if defined(TESSERA_CUDA)
  if (!context().device().is_cpu()) {
    cuda::Timer timer;
    timer.start();
    run();
    timer.stop();
    return timer.seconds() * 1e3;
  }
#endif
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace tessera
