#include <algorithm>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"
#include "kernels/swiglu/op.h"

namespace tessera::cpu {
namespace {

template <typename C>
inline C sigmoid(C x) {
  return C(1) / (C(1) + exponential(-x));
}

/// Row n of the columns.
template <typename T>
T* row_of(const Columns& x, std::int64_t n) {
  return x.tensor.data<T>() + n * x.tensor.size(1) + x.first;
}

/// Calls f(n) for every row n, in chunks of about kElementwiseChunk elements.
template <typename F>
void for_each_row(std::int64_t rows, std::int64_t columns, const F& f) {
  const std::int64_t chunk =
      std::max<std::int64_t>(1, kElementwiseChunk / std::max<std::int64_t>(1, columns));
  parallel_for(rows, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) f(n);
  });
}

template <typename T>
void forward_row(T* y, const T* gate, const T* up, std::int64_t columns) {
#pragma GCC ivdep
  for (std::int64_t f = 0; f < columns; ++f) {
    const auto g = load(gate[f]);
    store(y[f], g * sigmoid(g) * load(up[f]));
  }
}

/// Each of dgate and dup may be gate or up.
template <typename T>
void backward_row(T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t columns) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (std::int64_t f = 0; f < columns; ++f) {
    const C d = load(dy[f]), g = load(gate[f]), u = load(up[f]), s = sigmoid(g);
    store(dup[f], d * (g * s));
    store(dgate[f], d * u * (s * (C(1) + g * (C(1) - s))));
  }
}

}  // namespace

void swiglu_forward(Out y, const Columns& gate, const Columns& up) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const to = y.data<T>();
    const std::int64_t columns = y.size(1);
    for_each_row(y.size(0), columns, [&](std::int64_t n) {
      forward_row(to + n * columns, row_of<T>(gate, n), row_of<T>(up, n), columns);
    });
  });
}

void swiglu_backward(const Columns& dgate, const Columns& dup, const Tensor& dy,
                     const Columns& gate, const Columns& up) {
  visit_floating(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const from = dy.data<T>();
    const std::int64_t columns = dy.size(1);
    for_each_row(dy.size(0), columns, [&](std::int64_t n) {
      backward_row(row_of<T>(dgate, n), row_of<T>(dup, n), from + n * columns, row_of<T>(gate, n),
                   row_of<T>(up, n), columns);
    });
  });
}

}  // namespace tessera::cpu
