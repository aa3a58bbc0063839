// The time of a kernel, from cold caches.
#pragma once

#include <functional>

#include "runtime/tensor.h"

namespace tessera {

/// Times work on the current context's device. Its compute stream must be the current stream.
class Stopwatch {
 public:
  /// Every measurement is repeated `runs` times. Before each, `flushed_bytes` are written to flush the
  /// caches; 0: several times the size of every cache.
  explicit Stopwatch(int runs, std::int64_t flushed_bytes = 0);

  /// The median of the milliseconds of one call of `run`. On a GPU that is the time between two
  /// events of its stream, so launches do not count while the GPU is busy.
  double median_ms(const std::function<void()>& run) const;

  /// The bytes written to flush the caches.
  std::int64_t flushed_bytes() const { return scratch_.numel(); }

 private:
  double once_ms(const std::function<void()>& run) const;

  int runs_;
  Tensor scratch_;
};

}  // namespace tessera
