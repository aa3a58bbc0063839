// The maximum and the sum of exponentials of a row of logits, on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/numeric.h"

namespace tessera::cpu {

/// Exponentials are added in storage precision over this many elements, then in double.
inline constexpr std::int64_t kSumBlock = 1024;

/// Rows per chunk of the parallel loops. A chunk of at least 16384 elements is worth a thread.
inline std::int64_t rows_per_chunk(std::int64_t classes) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, classes));
}

/// Minus infinity if there is no greater logit; a NaN is passed over.
template <typename T>
compute_t<T> maximum(const T* logits, std::int64_t classes) {
  compute_t<T> result = -std::numeric_limits<compute_t<T>>::infinity();
#pragma omp simd reduction(max : result)
  for (std::int64_t v = 0; v < classes; ++v) {
    const compute_t<T> logit = load(logits[v]);
    result = logit > result ? logit : result;
  }
  return result;
}

/// The sum of e^(logit - reference). The reference is the maximum, so that nothing overflows. A row is
/// read once more, but from the cache.
template <typename T>
double sum_of_exponentials(const T* logits, std::int64_t classes, compute_t<T> reference) {
  using C = compute_t<T>;
  double total = 0.0;
  for (std::int64_t begin = 0; begin < classes; begin += kSumBlock) {
    const std::int64_t end = std::min(classes, begin + kSumBlock);
    total += sum_of<C>(end - begin, [&](std::int64_t v) {
      return exponential(load(logits[begin + v]) - reference);
    });
  }
  return total;
}

}  // namespace tessera::cpu
