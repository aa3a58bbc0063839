// Element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/enum_names.h"
#include "runtime/half.h"

namespace tessera {

/// f64 exists for gradient checks and runs on the CPU only. e4m3 and e5m2 are numbers of 8 bits over a scale
/// (kernels/fp8/op.h).
enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i64, u8, e4m3, e5m2 };

template <>
inline constexpr EnumNames<DType> kEnumNames<DType> = {
    "dtype", {"f32", "bf16", "f16", "f64", "i32", "i64", "u8", "e4m3", "e5m2"}};

/// Bytes per element.
std::size_t size_of(DType dtype);

/// "f32", "bf16", ...
constexpr std::string_view name_of(DType dtype) {
  return enum_name(dtype);
}

/// The inverse of name_of. Raises Error for an unknown name.
constexpr DType dtype_from_name(std::string_view name) {
  return enum_from_name<DType>(name);
}

/// True for f32, bf16, f16 and f64.
bool is_floating(DType dtype);
/// True for e4m3 and e5m2.
constexpr bool is_fp8(DType dtype) {
  return dtype == DType::e4m3 || dtype == DType::e5m2;
}

/// The dtype of statistics and losses of tensors of this dtype: f64 for f64, otherwise f32.
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
