#include "runtime/dtype.h"

#include "runtime/check.h"

namespace tessera {
namespace {

struct Description {
  std::string_view name;
  std::size_t size;
};

// In the order of the enumeration.
constexpr Description kDescriptions[] = {{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"f64", 8},
                                         {"i32", 4}, {"i64", 8},  {"u8", 1}};

}  // namespace

std::size_t size_of(DType dtype) {
  return kDescriptions[static_cast<int>(dtype)].size;
}

std::string_view name_of(DType dtype) {
  return kDescriptions[static_cast<int>(dtype)].name;
}

DType dtype_from_name(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(kDescriptions)); ++i) {
    if (kDescriptions[i].name == name) return static_cast<DType>(i);
  }
  fail("unknown dtype '{}': expected f32, bf16, f16, f64, i32, i64 or u8", name);
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

}  // namespace tessera
