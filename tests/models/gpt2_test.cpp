#include "models/gpt2/model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::index_tensor;
using test::tiny_tokens;
using test::WholeModel;

const auto kTiny = test::tiny<Gpt2Config>("gpt2-mini");

Gpt2Config with_dropout(float probability) {
  Gpt2Config config = kTiny;
  config.dropout = probability;
  return config;
}

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
};

Moments moments(const Tensor& tensor) {
  const std::vector<double> values = test::to_doubles(tensor);
  const auto count = static_cast<double>(values.size());
  Moments result;
  for (const double value : values) result.mean += value / count;
  for (const double value : values) {
    result.deviation += (value - result.mean) * (value - result.mean) / count;
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}

}  // namespace

TEST_CASE("initial values are those published for GPT-2") {
  const test::Rank rank;
  const WholeModel whole({.vocab_size = 701, .context = 64, .layers = 8, .heads = 4, .width = 64},
                         /*seed=*/5);
  for (const Shard& shard : whole.shards()) {
    const std::string& name = shard.parameter.name();
    CAPTURE(name);
    const bool is_bias = name.ends_with(".bias");
    if (is_bias || name.find("ln_") != std::string::npos) {
      const std::vector<float> constant(shard.data.numel(), is_bias ? 0.0f : 1.0f);
      CHECK(shard.data.to_vector<float>() == constant);
      continue;
    }
    const Moments actual = moments(shard.data);
    // The layers that end a residual branch, two per block, start smaller.
    const bool residual = name.ends_with("c_proj.weight");
    const double expected = residual ? 0.02 / std::sqrt(2.0 * 8) : 0.02;
    const auto count = static_cast<double>(shard.data.numel());
    CHECK(std::abs(actual.mean) < 5 * expected / std::sqrt(count));
    CHECK(std::abs(actual.deviation / expected - 1) < 5 / std::sqrt(2 * count));
  }
}

TEST_CASE("initial values depend on the seed and the parameter alone") {
  const test::Rank rank;
  const std::string name = "transformer.h.1.mlp.c_fc.weight";
  Gpt2Config deeper = kTiny;
  deeper.layers = 3;
  const Tensor first = WholeModel(kTiny, 5).shard(name).data;
  REQUIRE(test::same_bits(WholeModel(deeper, 5).shard(name).data, first));
  REQUIRE_FALSE(test::same_bits(WholeModel(kTiny, 6).shard(name).data, first));
  const WholeModel whole(kTiny, 5);
  REQUIRE_FALSE(test::same_bits(whole.shard("transformer.h.0.mlp.c_fc.weight").data, first));
}

TEST_CASE("a fresh model's loss is that of guessing") {
  const test::Rank rank;
  const WholeModel whole(kTiny);
  const float loss = whole.evaluate(tiny_tokens("inputs"), tiny_tokens("targets"));
  REQUIRE(loss == Approx(std::log(53.0)).margin(0.02));
}

TEST_CASE("dropout acts in training only and differs in every step and micro-batch") {
  test::Rank rank;
  const WholeModel plain(kTiny);
  const WholeModel dropping(with_dropout(0.3f));
  const Tensor inputs = tiny_tokens("inputs");
  const Tensor targets = tiny_tokens("targets");
  REQUIRE(dropping.evaluate(inputs, targets) == plain.evaluate(inputs, targets));

  const auto loss_at = [&](std::uint64_t step, std::uint64_t micro_batch) {
    rank.context.random().step = step;
    rank.context.random().micro_batch = micro_batch;
    return dropping.differentiate(inputs, targets);
  };
  const float first = loss_at(0, 0);
  REQUIRE(first != plain.evaluate(inputs, targets));
  REQUIRE(loss_at(1, 0) != first);
  REQUIRE(loss_at(0, 1) != first);
  REQUIRE(loss_at(0, 0) == first);
}

TEST_CASE("the operations of a training step follow the closed formula") {
  // gpt2 has 12 * 12 * 768^2 weights in its blocks and 50257 * 768 in its head.
  const double weights = 123532032.0;
  const double attention_per_token = 6.0 * 12 * 768 * 256;
  const TransformerShape shape = shape_of(model_preset("gpt2"));
  REQUIRE(training_flops(shape, 4, 256) == 4 * 256 * (6 * weights + attention_per_token));

  double products = 0.0;
  for (const MatmulShape& product : training_matmuls(shape, 4 * 256)) products += product.flops();
  REQUIRE(products == 4 * 256 * 6 * weights);
}

TEST_CASE("wrong sizes and wrong tokens are refused") {
  const test::Rank rank;
  REQUIRE_THROWS_WITH(Gpt2({.heads = 5, .width = 24}),
                      Contains("width is 24") && Contains("5 heads"));
  REQUIRE_THROWS_WITH(Gpt2({.layers = 0}), Contains("layers is 0"));
  REQUIRE_THROWS_WITH(Gpt2(with_dropout(1.0f)), Contains("dropout"));

  const WholeModel whole(kTiny);
  const NoGradient no_gradient;
  REQUIRE_THROWS_WITH(whole.model->logits(tiny_tokens("inputs", 1, 13)),
                      Contains("13 tokens") && Contains("context of 12"));
  const auto read_too_far = [&] {
    whole.model->logits(index_tensor({1, 4}, 200, "too large"));
    current_stream().synchronize();  // where a GPU's bad data comes to light
  };
  REQUIRE_THROWS_WITH(read_too_far(), Contains(test::kOnGpu ? "is not a row of the table" : "53"));
  REQUIRE_THROWS_WITH(whole.model->logits(tiny_tokens("inputs").reshape({33})), Contains("[B, T]"));
  REQUIRE_THROWS_WITH(
      whole.model->loss(tiny_tokens("inputs"), tiny_tokens("targets", 3, 10), 1.0, false),
      Contains("targets") && Contains("[3, 10]"));
}

TEST_CASE("a model without memory is an error that names a parameter") {
  const test::Rank rank;
  Gpt2 model(kTiny);
  REQUIRE_THROWS_WITH(model.logits(tiny_tokens("inputs")),
                      Contains("transformer.w") && Contains("closed"));
}

}  // namespace tessera
