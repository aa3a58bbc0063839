#include "runtime/dtype.h"

#include <catch2/catch.hpp>

#include "runtime/error.h"

namespace tessera {
namespace {

constexpr DType kAll[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                          DType::i32, DType::i64,  DType::u8};

template <typename T>
void require_matches(DType dtype) {
  REQUIRE(dtype_of<T> == dtype);
  REQUIRE(size_of(dtype) == sizeof(T));
}

}  // namespace

TEST_CASE("a dtype has the size of its C++ type") {
  require_matches<float>(DType::f32);
  require_matches<bfloat16>(DType::bf16);
  require_matches<float16>(DType::f16);
  require_matches<double>(DType::f64);
  require_matches<std::int32_t>(DType::i32);
  require_matches<std::int64_t>(DType::i64);
  require_matches<std::uint8_t>(DType::u8);
}

TEST_CASE("a dtype's name leads back to it") {
  for (const DType dtype : kAll) REQUIRE(dtype_from_name(name_of(dtype)) == dtype);
  REQUIRE(name_of(DType::bf16) == "bf16");
  REQUIRE_THROWS_WITH(dtype_from_name("fp32"),
                      Catch::Contains("unknown dtype 'fp32'") && Catch::Contains("f32, bf16, f16"));
  REQUIRE_THROWS_AS(dtype_from_name(""), Error);
}

TEST_CASE("visit_floating calls with the floating types and refuses the others") {
  for (const DType dtype : kAll) {
    bool called = false;
    const bool floating = visit_floating(dtype, [&](auto type) {
      called = true;
      REQUIRE(dtype_of<decltype(type)> == dtype);
    });
    REQUIRE(floating == is_floating(dtype));
    REQUIRE(called == floating);
  }
  REQUIRE(is_floating(DType::f64));
  REQUIRE_FALSE(is_floating(DType::i32));
}

}  // namespace tessera
