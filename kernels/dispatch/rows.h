// Rows of experts on the CPU, and loops over one.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/numeric.h"
#include "runtime/tensor.h"

namespace tessera::cpu {

/// places [N, k] and weights, by slot. Without places row p is slot p; without weights they are 1.
template <typename T>
struct Slots {
  std::int64_t per_token;
  const std::int32_t* places;
  const T* weights;

  Slots(const Tensor& places, const Tensor& weights)
      : per_token(places.defined() ? places.size(1) : 1),
        places(places.defined() ? places.data<std::int32_t>() : nullptr),
        weights(weights.defined() ? weights.data<T>() : nullptr) {}

  std::int64_t place(std::int64_t slot) const { return places == nullptr ? slot : places[slot]; }
  compute_t<T> weight(std::int64_t slot) const {
    return weights == nullptr ? compute_t<T>(1) : load(weights[slot]);
  }
};

template <typename T>
void scale_row(T* y, const T* x, compute_t<T> factor, std::int64_t columns) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < columns; ++c) store(y[c], factor * load(x[c]));
}

template <typename T>
compute_t<T> dot(const T* a, const T* b, std::int64_t columns) {
  return sum_of<compute_t<T>>(columns, [&](std::int64_t c) { return load(a[c]) * load(b[c]); });
}

}  // namespace tessera::cpu
