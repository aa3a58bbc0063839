#include "kernels/reduce/op.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kFloating;
using test::normal_tensor;
using test::same_bits;
using test::to_doubles;

Tensor result_for(DType dtype) {
  return Tensor::empty({1}, statistics_dtype(dtype));
}

}  // namespace

TEST_CASE("sum: within one rounding of the exact sum, for any length and dtype") {
  const test::Rank rank;
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : {0, 1, 3, 17, 1000, 65'536, 65'537, 200'003}) {
      const Tensor x = normal_tensor({count}, dtype, "x");
      long double expected = 0.0L;
      for (const double value : to_doubles(x)) expected += value;
      const Tensor result = result_for(dtype);
      sum(result, x);
      // The partial sums of normal values stay below 4 sqrt(count).
      const double rounding = dtype == DType::f64 ? 1e-12 : 0x1p-24 * std::fabs(expected) + 1e-9;
      REQUIRE(std::fabs(to_doubles(result)[0] - static_cast<double>(expected)) <= rounding);
    }
  }
}

TEST_CASE("sum: the small parts of a long sum are not lost") {
  const test::Rank rank;
  // An f32 running sum of ones stops at 2^24.
  std::vector<float> values((1 << 18) + 1, 1.0f);
  values[0] = 0x1p24f;
  const Tensor result = result_for(DType::f32);
  sum(result, Tensor::from(values, {(1 << 18) + 1}));
  REQUIRE(result.item<float>() == 0x1p24f + 0x1p18f);
}

TEST_CASE("sum: the same bits under every schedule, at any address") {
  const test::Rank owner;  // the tensors outlive the contexts of the schedules
  const Tensor aligned = normal_tensor({300'001}, DType::bf16, "x");
  std::vector<Tensor> all;
  for (const Tensor& x : {aligned, test::unaligned(aligned)}) {
    current_stream().synchronize();  // their streams do not wait for this one
    test::for_every_schedule([&] {
      sum(all.emplace_back(result_for(x.dtype())), x);
      REQUIRE(same_bits(all.back(), all.front()));
    });
  }
}

TEST_CASE("sum: wrong arguments are named") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({4}, DType::f32), words = Tensor::zeros({1}, DType::i64);
  REQUIRE_THROWS_WITH(sum(x, x), Contains("sum: result is f32 [4]; its shape must be [1]"));
  REQUIRE_THROWS_WITH(sum(words, x), Contains("sum: result is i64 [1]; its dtype must be f32"));
  REQUIRE_THROWS_WITH(sum(words, words), Contains("x is i64 [1]"));
}

TEST_CASE("sum: the sum of f64 is f64", "[cpu]") {
  const test::Rank rank;
  const Tensor one = Tensor::zeros({1}, DType::f32), f64 = Tensor::zeros({4}, DType::f64);
  REQUIRE_THROWS_WITH(sum(one, f64), Contains("sum: result is f32 [1]; its dtype must be f64"));
}

}  // namespace tessera
