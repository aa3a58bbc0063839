#include "tools/train/optimizer.h"

#include <catch2/catch.hpp>

#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("make_optimizer keeps a shard's place in its parameter") {
  // With p in bf16, AdamW's random numbers are addressed by it.
  const test::Rank rank;
  const Parameter w("w", {1003}, {});
  const Shard shard{.parameter = w,
                    .data = Tensor::zeros({669}, DType::f32),
                    .gradient = Tensor::zeros({669}, DType::f32),
                    .first = 334};
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    const auto optimizer = make_optimizer({.name = kind}, {shard}, 1);
    REQUIRE(optimizer->shards().size() == 1);
    REQUIRE(optimizer->shards()[0].first == 334);
  }
}

}  // namespace tessera
