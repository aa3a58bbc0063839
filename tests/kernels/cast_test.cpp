#include <catch2/catch.hpp>

#include "kernels/cast/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("cast rounds to the target's precision between all floating dtypes") {
  const test::Rank rank;
  for (const DType from : test::kFloating) {
    for (const DType to : test::kFloating) {
      for (const std::int64_t n : {0, 1, 31, 16 * 1024 + 5}) {
        const Tensor x = test::normal_tensor({n}, from, "x");
        const Tensor y = test::poisoned({n}, to);
        cast(y, x);
        // 2^-14 is f16's smallest normal number; below it the rounding error is absolute.
        REQUIRE(test::worst_error(test::to_doubles(y), test::to_doubles(x), 0x1p-14) <=
                test::unit_roundoff(to));
      }
    }
  }
}

TEST_CASE("cast to a wider dtype and back changes nothing") {
  const test::Rank rank;
  for (const DType from : {DType::bf16, DType::f16, DType::f32}) {
    const Tensor x = test::normal_tensor({1000}, from, "x"), back = test::poisoned({1000}, from);
    const Tensor wide = test::poisoned({1000}, DType::f64);
    cast(wide, x);
    REQUIRE(test::to_doubles(wide) == test::to_doubles(x));
    cast(back, wide);
    REQUIRE(test::same_bits(back, x));
  }
}

TEST_CASE("cast from f64 to 16 bits rounds once") {
  // Each lies so close to a tie that a stop at f32 would land on it and go the wrong way.
  const test::Rank rank;
  const std::vector<double> values = {1.0 + 0x1p-8 + 0x1p-40,
                                      1.0 + 3 * 0x1p-8 - 0x1p-40,
                                      -1.0 - 0x1p-8 - 0x1p-40,
                                      1e300,
                                      -0.0,
                                      0.5};
  const Tensor x = Tensor::from(values, {6}), y = test::poisoned({6}, DType::bf16);
  cast(y, x);
  REQUIRE(test::to_doubles(y) ==
          std::vector<double>{1.0 + 0x1p-7, 1.0 + 0x1p-7, -1.0 - 0x1p-7, HUGE_VAL, 0.0, 0.5});
  REQUIRE(y.to_vector<bfloat16>()[4].bits == 0x8000u);
}

TEST_CASE("cast keeps infinities and NaN") {
  const test::Rank rank;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType from : test::kFloating) {
    for (const DType to : test::kFloating) {
      const Tensor special = Tensor::from(std::vector<float>{infinity, -infinity, NAN}, {3});
      const Tensor x = Tensor::empty({3}, from), y = Tensor::empty({3}, to);
      cast(x, special);
      cast(y, x);
      const auto values = test::to_doubles(y);
      REQUIRE(values[0] == infinity);
      REQUIRE(values[1] == -infinity);
      REQUIRE(std::isnan(values[2]));
    }
  }
}

TEST_CASE("widened copies 16-bit tensors to f32 in the workspace, and others not at all") {
  test::Rank rank;
  const auto workspace = [&] {
    return rank.context.allocator().account()[Category::workspace].current;
  };
  for (const DType dtype : test::kFloating) {
    const Tensor x = test::normal_tensor({3, 5}, dtype, "x");
    const Tensor wide = widened(x);
    REQUIRE(wide.dtype() == (dtype == DType::f64 ? DType::f64 : DType::f32));
    REQUIRE(test::to_doubles(wide) == test::to_doubles(x));
    REQUIRE((wide.raw() == x.raw()) == (size_of(dtype) != 2));
    REQUIRE(workspace() == (size_of(dtype) == 2 ? 4 * 15 : 0));
  }
}

TEST_CASE("cast refuses integers and unequal shapes") {
  const test::Rank rank;
  const Tensor y = Tensor::zeros({2, 3}, DType::f32);
  REQUIRE_THROWS_WITH(cast(y, Tensor::zeros({2, 3}, DType::i32)),
                      Catch::Contains("cast: x is i32 [2, 3]; its dtype must be f32"));
  REQUIRE_THROWS_WITH(cast(y, Tensor::zeros({6}, DType::bf16)),
                      Catch::Contains("shapes must be equal"));
  REQUIRE_THROWS_WITH(cast(y, y), Catch::Contains("cast: y overlaps x"));
}

}  // namespace tessera
