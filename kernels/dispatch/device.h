// Rows of experts in device code.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "runtime/tensor.h"

namespace tessera::cuda {

/// places [N, k] and weights, by slot. Without places row p is slot p; without weights they are 1.
template <typename T>
struct Slots {
  std::int64_t per_token;
  const std::int32_t* places;
  const T* weights;

  Slots(const Tensor& places, const Tensor& weights)
      : per_token(places.defined() ? places.size(1) : 1),
        places(gpu::pointer<std::int32_t>(places)),
        weights(gpu::pointer<T>(weights)) {}

  __device__ std::int64_t place(std::int64_t slot) const {
    return places == nullptr ? slot : places[slot];
  }
  __device__ float weight(std::int64_t slot) const {
    return weights == nullptr ? 1.0f : gpu::load(weights[slot]);
  }
};

}  // namespace tessera::cuda
