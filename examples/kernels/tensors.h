// Tensors for the small programs of the chapters on kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace tessera {

/// An f32 tensor of standard normal values: a function of the name and the shape.
inline Tensor normal(const Shape& shape, std::string_view name) {
  const RandomStream random(/*seed=*/1, name);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
  return Tensor::from(values, shape);
}

/// Whether two f32 tensors have equal bits. (No value here is a NaN or a negative zero.)
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.to_vector<float>(), b.to_vector<float>());
}

inline std::string_view yes_or_no(bool yes) {
  return yes ? "yes" : "no";
}

}  // namespace tessera
