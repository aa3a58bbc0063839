#include "tools/bench/stopwatch.h"

#include "kernels/bias/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/integer.h"

namespace tessera {
namespace {

// The largest caches: 60 MB of L2 on an H200, some tens of MB of L3 in a CPU.
constexpr std::int64_t kCpuScratch = std::int64_t{128} << 20;
constexpr std::int64_t kGpuScratch = std::int64_t{512} << 20;
constexpr std::int64_t kColumns = 1024;

std::int64_t enough_to_flush() {
  return context().device().is_cpu() ? kCpuScratch : kGpuScratch;
}

std::int64_t rows_of(std::int64_t bytes) {
  return ceil_div(bytes > 0 ? bytes : enough_to_flush(), kColumns * size_of(DType::f32));
}

}  // namespace

Stopwatch::Stopwatch(int runs, std::int64_t flushed_bytes)
    : runs_(runs),
      scratch_(Tensor::zeros({rows_of(flushed_bytes), kColumns}, DType::f32)),
      sums_(Tensor::empty({kColumns}, DType::f32)) {
  check(runs >= 1, "runs is {}; expected at least 1", runs);
}

std::vector<Quartiles> Stopwatch::in_turns(const std::vector<std::function<void()>>& works) const {
  constexpr int kWarmUps = 2;
  std::vector<std::vector<double>> times(works.size());
  for (int i = -kWarmUps; i < runs_; ++i) {
    for (std::size_t w = 0; w < works.size(); ++w) {
      const double ms = once_ms(works[w]);
      if (i >= 0) times[w].push_back(ms);
    }
  }
  std::vector<Quartiles> all;
  for (std::vector<double>& of_work : times) all.push_back(quartiles(std::move(of_work)));
  return all;
}

double Stopwatch::once_ms(const std::function<void()>& run) const {
  bias_backward(sums_, scratch_, Accumulate::no);  // reads all rows, and writes one
  const TimePoint begin = TimePoint::now();
  run();
  return milliseconds_between(begin, TimePoint::now());
}

}  // namespace tessera
