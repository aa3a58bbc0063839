// Tensors of addressed random numbers for tests.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/check.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace tessera::test {

/// `values` rounded to `dtype`.
inline Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Tensor tensor;
  const bool floating = visit_floating(dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<T> rounded;
    for (const double value : values) {
      if constexpr (sizeof(T) == 2) {
        rounded.push_back(T(static_cast<float>(value)));
      } else {
        rounded.push_back(static_cast<T>(value));
      }
    }
    tensor = Tensor::from(rounded, shape);
  });
  check(floating, "tensor_of makes floating tensors only");
  return tensor;
}

/// Standard normal values, a function of (name, index) alone. Those of a name are drawn once.
inline std::vector<double> normal_values(std::string_view name, std::int64_t count) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<float>> drawn;
  const std::lock_guard lock(mutex);
  std::vector<float>& values = drawn[std::string(name)];
  const std::size_t first = values.size(), size = static_cast<std::size_t>(count);
  if (first < size) {
    values.resize(size);
    fill_normal(std::span(values).subspan(first), RandomStream(7, name), first);
  }
  return {values.begin(), values.begin() + count};
}

/// Standard normal values times `scale`, rounded to `dtype`.
inline Tensor normal_tensor(const Shape& shape, DType dtype, std::string_view name,
                            double scale = 1.0) {
  std::vector<double> values = normal_values(name, shape.numel());
  for (double& value : values) value *= scale;
  return tensor_of(values, shape, dtype);
}

/// A copy that begins one element after a multiple of 16 bytes, as slices may.
inline Tensor unaligned(const Tensor& tensor) {
  const Tensor memory = Tensor::empty({tensor.numel() + 1}, tensor.dtype());
  const Tensor copy = memory.slice(1, tensor.numel() + 1).reshape(tensor.shape());
  copy.copy_from(tensor);
  return copy;
}

/// Integers uniform in [0, bound).
inline Tensor index_tensor(const Shape& shape, std::int64_t bound, std::string_view name) {
  const RandomStream random(7, name);
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    values.push_back(static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(bound))));
  }
  return Tensor::from(values, shape);
}

/// Every element as double, from any floating dtype.
inline std::vector<double> to_doubles(const Tensor& tensor) {
  std::vector<double> values;
  const bool floating = visit_floating(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    for (const T& value : tensor.to_vector<T>()) {
      if constexpr (sizeof(T) == 2) {
        values.push_back(static_cast<float>(value));
      } else {
        values.push_back(static_cast<double>(value));
      }
    }
  });
  check(floating, "to_doubles reads floating tensors only");
  return values;
}

/// |a - b| / |b| in the Euclidean norm; |a| if b is zero.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size(), "relative_error compares {} with {} values", a.size(), b.size());
  double difference = 0.0, reference = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    reference += b[i] * b[i];
  }
  return std::sqrt(difference) / (reference > 0.0 ? std::sqrt(reference) : 1.0);
}

/// The bytes of a tensor on any device.
inline std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  const auto offset = static_cast<std::size_t>(tensor.raw() - tensor.storage().data());
  return Tensor::view(tensor.storage(), offset, {static_cast<std::int64_t>(tensor.bytes())},
                      DType::u8)
      .to_vector<std::uint8_t>();
}

/// Are all bytes equal? (Stricter than ==: -0 differs from 0, and NaN equals NaN.)
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && bytes_of(a) == bytes_of(b);
}

}  // namespace tessera::test
