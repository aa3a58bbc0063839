// How long kernels take, from cold caches.
#pragma once

#include <functional>

#include "runtime/tensor.h"

namespace tessera {

/// On the current context's device, whose compute stream must be the current one.
class Stopwatch {
 public:
  /// Times everything `runs` times. `flushed_bytes` are written to flush the caches; 0: several
  /// times the size of every cache.
  explicit Stopwatch(int runs, std::int64_t flushed_bytes = 0);

  /// Milliseconds of one call of `run`, the median. The caches are flushed before each. A GPU's
  /// time is that between two events of its stream, so that launching does not count where the GPU
  /// is behind.
  double median_ms(const std::function<void()>& run) const;

  /// What is written to flush the caches.
  std::int64_t flushed_bytes() const { return scratch_.numel(); }

 private:
  double once_ms(const std::function<void()>& run) const;

  int runs_;
  Tensor scratch_;
};

}  // namespace tessera
