#include <catch2/catch.hpp>

#include "kernels/scale/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("scale multiplies every element, in place or not") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t n : {0, 1, 35, 2 * 16 * 1024 + 1}) {
      const Tensor x = test::normal_tensor({n}, dtype, "x");
      auto expected = test::to_doubles(x);
      for (double& value : expected) value *= 0.375;  // exact in every dtype
      const Tensor y = test::poisoned({n}, dtype);
      scale(y, x, 0.375);
      // 2^-14 is f16's smallest normal number; below it the rounding error is absolute.
      REQUIRE(test::worst_error(test::to_doubles(y), expected, 0x1p-14) <=
              test::unit_roundoff(dtype));
      scale(x, x, 0.375);
      REQUIRE(test::same_bits(x, y));
    }
  }
}

TEST_CASE("scale uses the whole factor for f64", "[cpu]") {
  const test::Rank rank;
  const Tensor x = Tensor::from(std::vector<double>{3.0}, {1});
  scale(x, x, 0.1);
  REQUIRE(x.item<double>() == 0.1 * 3.0);
}

TEST_CASE("scale refuses arguments that do not fit together") {
  const test::Rank rank;
  const Tensor y = Tensor::zeros({2, 3}, DType::f32);
  REQUIRE_THROWS_WITH(scale(y, Tensor::zeros({3, 2}, DType::f32), 2.0),
                      Catch::Contains("scale: y is f32 [2, 3] and x is f32 [3, 2]"));
  REQUIRE_THROWS_WITH(scale(y, Tensor::zeros({2, 3}, DType::bf16), 2.0),
                      Catch::Contains("dtypes must be equal"));
}

}  // namespace tessera
