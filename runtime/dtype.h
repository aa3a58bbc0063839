// Element types and the two 16-bit floating-point formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/half.h"

namespace tessera {

/// f64 exists for gradient checks and runs on the CPU only.
enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i64, u8 };

/// Bytes per element.
std::size_t size_of(DType dtype);

/// "f32", "bf16", ...
std::string_view name_of(DType dtype);

/// The inverse of name_of; raises Error for an unknown name.
DType dtype_from_name(std::string_view name);

/// True for f32, bf16, f16 and f64.
bool is_floating(DType dtype);

/// What statistics and losses beside tensors of this dtype are kept in: f64 for f64, else f32.
constexpr DType statistics_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// The DType of a C++ element type: dtype_of<float> == DType::f32.
template <typename T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float16> = DType::f16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

/// Calls `f(T{})` with the C++ type of a floating dtype; false if `dtype` is not floating.
template <typename F>
bool visit_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      f(float{});
      return true;
    case DType::bf16:
      f(bfloat16{});
      return true;
    case DType::f16:
      f(float16{});
      return true;
    case DType::f64:
      f(double{});
      return true;
    default:
      return false;
  }
}

}  // namespace tessera
