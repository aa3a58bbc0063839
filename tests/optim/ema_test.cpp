#include "optim/ema.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::relative_error;
using test::to_doubles;
using Values = std::vector<double>;

ParameterShard shard(DType dtype) {
  return {.name = "w", .data = normal_tensor({100}, dtype, "w")};
}

}  // namespace

TEST_CASE("ema: averages follow their formula in float64, for f32 and bf16 weights") {
  test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const ParameterShard w = shard(dtype);
    const std::int64_t before = rank.context.allocator().account()[Category::optimizer].current;
    Ema ema({w}, 0.8, 0);
    REQUIRE(rank.context.allocator().account()[Category::optimizer].current - before == 4 * 100);
    Values expected = to_doubles(w.data);
    for (int step = 0; step < 10; ++step) {
      w.data.copy_from(normal_tensor({100}, dtype, "step " + std::to_string(step)));
      const Values now = to_doubles(w.data);
      for (std::size_t i = 0; i < now.size(); ++i) {
        expected[i] = 0.8 * expected[i] + (1.0 - 0.8) * now[i];
      }
      ema.update(step % 2 == 0 ? GradientScale(3.0) : Tensor::full({1}, DType::f32, 0.25));
    }
    const NamedTensors averages = ema.averages();
    REQUIRE(averages.size() == 1);
    REQUIRE(averages[0].first == "w");
    REQUIRE(averages[0].second.dtype() == DType::f32);
    REQUIRE(relative_error(to_doubles(averages[0].second), expected) <= 1e-6);
  }
}

TEST_CASE("ema: an update that was skipped leaves the averages") {
  const test::Rank rank;
  const ParameterShard w = shard(DType::f32);
  Ema ema({w}, 0.5, 0);
  const Values before = to_doubles(ema.averages()[0].second);
  w.data.copy_from(normal_tensor({100}, DType::f32, "other"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ema.update(Tensor::full({1}, DType::f32, nan));
  REQUIRE(to_doubles(ema.averages()[0].second) == before);
  ema.update(Tensor::full({1}, DType::f32, 1.0));
  REQUIRE(to_doubles(ema.averages()[0].second) != before);
}

TEST_CASE("ema: a decay of 0 or 1 is refused") {
  const test::Rank rank;
  REQUIRE_THROWS_WITH(Ema({shard(DType::f32)}, 1.0, 0), Catch::Contains("the decay is 1"));
  REQUIRE_THROWS_WITH(Ema({shard(DType::f32)}, 0.0, 0), Catch::Contains("the decay is 0"));
}

}  // namespace tessera
