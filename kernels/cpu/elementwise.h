// Loops over the elements of tensors of equal shape.
#pragma once

#include <cstdint>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rectangle.h"

namespace tessera::cpu {

/// Elements per chunk of such a loop: 64 KB of f32 per tensor. A chunk's work (microseconds)
/// outweighs handing it to a thread, and small tensors stay on one thread.
inline constexpr std::int64_t kElementwiseChunk = 16 * 1024;

/// y[i] = f(x[i]...) for i in [0, n); `f` takes and returns arithmetic types (see load, store_as).
/// Each x is y itself or does not overlap it.
template <typename Y, typename F, typename... X>
void elementwise(std::int64_t n, Y* y, const F& f, const X*... x) {
  parallel_for(n, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
  // Without the pragma a check for overlap would choose a scalar loop for in-place calls.
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) store_as(y[i], f(load(x[i])...));
  });
}

/// The same for a part of matrices with rows of `width` elements, on the calling thread.
template <typename Y, typename F, typename... X>
void elementwise(Isa isa, const Rectangle& part, std::int64_t width, Y* y, const F& f,
                 const X*... x) {
  const auto row = [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) store_as(y[i], f(load(x[i])...));
  };
  for (std::int64_t i = 0; i < part.rows; ++i) {
    const std::int64_t begin = (part.row + i) * width + part.column;
    run_loop(isa, row, begin, begin + part.columns);
  }
}

/// y[i] = a[i] + b[i] within one task, with the bits of the operation add. y may be a or b.
template <typename T>
void add_row(T* y, const T* a, const T* b, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) store(y[i], load(a[i]) + load(b[i]));
}

}  // namespace tessera::cpu
