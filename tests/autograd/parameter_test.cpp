#include "autograd/parameter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/cast/op.h"
#include "runtime/context.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("initial values have the same bits on every device, whichever part is made") {
  const Parameter parameter("weight", {40, 25}, Initializer::normal(0.02));
  std::vector<float> on_cpu(1000);
  {
    RankContext cpu({.threads = 2});
    const ContextGuard guard(cpu);
    const Tensor whole = Tensor::empty({1000}, DType::f32);
    parameter.initialize(whole, 0, 7);
    on_cpu = whole.to_vector<float>();
  }
  const test::Rank rank;
  const Tensor whole = Tensor::empty({40, 25}, DType::f32);
  parameter.initialize(whole, 0, 7);
  REQUIRE(whole.to_vector<float>() == on_cpu);
  const Tensor part = Tensor::empty({300}, DType::f32);
  parameter.initialize(part, 333, 7);
  REQUIRE(part.to_vector<float>() == std::vector(on_cpu.begin() + 333, on_cpu.begin() + 633));
  parameter.initialize(part, 333, 8);
  REQUIRE(part.to_vector<float>()[0] != on_cpu[333]);
}

TEST_CASE("initial values: a row of zeros, whichever part is made") {
  const test::Rank rank;
  Initializer initializer = Initializer::normal(0.02);
  const Parameter plain("weight", {5, 7}, initializer);
  initializer.zero_row = 3;
  const Parameter padded("weight", {5, 7}, initializer);
  const Tensor values = Tensor::empty({5, 7}, DType::f32);
  plain.initialize(values, 0, 7);
  std::vector<float> expected = values.to_vector<float>();
  std::fill_n(expected.begin() + 21, 7, 0.0f);
  padded.initialize(values, 0, 7);
  REQUIRE(values.to_vector<float>() == expected);
  const Tensor part = Tensor::empty({10}, DType::f32);
  padded.initialize(part, 17, 7);
  REQUIRE(part.to_vector<float>() == std::vector(expected.begin() + 17, expected.begin() + 27));
}

TEST_CASE("initial values: constants, f64, and 16 bits as the rounded f32 values") {
  const test::Rank rank;
  const Tensor doubles = Tensor::empty({3}, DType::f64);
  Parameter("ones", {3}, Initializer::ones()).initialize(doubles, 0, 1);
  REQUIRE(doubles.to_vector<double>() == std::vector<double>(3, 1.0));

  const Parameter weight("w", {100}, Initializer::normal(0.02));
  const Tensor exact = Tensor::empty({100}, DType::f32);
  weight.initialize(exact, 0, 1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor narrow = Tensor::empty({60}, dtype);
    weight.initialize(narrow, 40, 1);
    const Tensor rounded = Tensor::empty({60}, dtype);
    cast(rounded, exact.slice(40, 100));
    CHECK(test::same_bits(narrow, rounded));
  }
  REQUIRE_THROWS_WITH(weight.initialize(Tensor::empty({100}, DType::i32), 0, 1),
                      Catch::Contains("'w'") && Catch::Contains("i32"));
}

}  // namespace tessera
