// The times of kernels, from cold caches.
#pragma once

#include <functional>
#include <vector>

#include "runtime/tensor.h"
#include "tools/measure/quartiles.h"

namespace tessera {

/// Times work on the current context's device. Its compute stream must be the current stream.
class Stopwatch {
 public:
  /// Every measurement is repeated `runs` times. Before each, `flushed_bytes` are read to flush the
  /// caches; 0: several times the size of every cache. Reads leave no lines behind that the timed work
  /// would have to write back.
  explicit Stopwatch(int runs, std::int64_t flushed_bytes = 0);

  /// The milliseconds of one call of each work. Works take turns: a, b, a, b, ..., so that a clock that
  /// falls as the device gets hot slows all of them. On a GPU the time is that between two events of its
  /// stream, so launches do not count while the GPU is busy.
  std::vector<Quartiles> in_turns(const std::vector<std::function<void()>>& works) const;

  /// The bytes read to flush the caches.
  std::int64_t flushed_bytes() const { return scratch_.numel() * size_of(scratch_.dtype()); }

 private:
  double once_ms(const std::function<void()>& run) const;

  int runs_;
  Tensor scratch_, sums_;  // [N, C] and [C] f32
};

}  // namespace tessera
