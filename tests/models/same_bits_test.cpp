// Training and generation compute the same bits of a token's log-probability.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "kernels/cross_entropy/op.h"
#include "models/registry.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::index_tensor;
using test::WholeModel;

constexpr std::int64_t kTokens = 150;
constexpr std::int64_t kVocabulary = 131;

/// A preset of two layers and odd sizes, with a context of kTokens.
WholeModel small_model(const std::string& preset) {
  Hyperparameters hyperparameters = model_preset(preset);
  std::visit(
      [](auto& config) {
        config.vocab_size = kVocabulary;
        config.context = kTokens;
        config.layers = 2;
        config.heads = 3;
        config.width = 3 * 26;
        if constexpr (requires { config.kv_heads; }) {
          config.kv_heads = 1;
          config.mlp_width = 201;
        }
      },
      hyperparameters);
  return WholeModel(make_model(hyperparameters));
}

/// -log p of target `t` of row `row`, as the training forward computes it in a batch.
float training_loss(const WholeModel& whole, const Tensor& inputs, const Tensor& targets,
                    std::int64_t row, std::int64_t t) {
  std::vector<std::int32_t> only(static_cast<std::size_t>(targets.numel()), kIgnoreIndex);
  const auto at = static_cast<std::size_t>(row * targets.size(1) + t);
  only[at] = targets.to_vector<std::int32_t>()[at];
  const NoGradient no_gradient;
  return whole.model
      ->loss(inputs, Tensor::from(only, targets.shape()), /*loss_scale=*/1.0, /*training=*/true)
      .data()
      .item<float>();
}

/// -log p of `target` by the logits of the token.
float loss_by(const Tensor& logits, std::int32_t target) {
  const Tensor loss = Tensor::empty({1}, logits.dtype());
  const Tensor logsumexp = Tensor::empty({1}, logits.dtype());
  cross_entropy_forward(loss, logsumexp, logits.reshape({1, logits.numel()}),
                        Tensor::from(std::vector{target}, {1}));
  return loss.item<float>();
}

struct Case {
  std::string preset;
  DType dtype;
};

const std::vector<Case> kCases = {{"gpt2-mini", DType::f32},   {"gpt2-mini", DType::bf16},
                                  {"llama3-mini", DType::f32}, {"llama3-mini", DType::bf16},
                                  {"qwen3-mini", DType::f32},  {"qwen3-mini", DType::bf16}};

}  // namespace

TEST_CASE("a token's log-probability has the training forward's bits however it was fed", "[cpu]") {
  const test::Rank rank;
  const Case c = GENERATE(from_range(kCases));
  CAPTURE(c.preset, name_of(c.dtype));
  const WholeModel whole = small_model(c.preset);
  whole.compute_in(c.dtype);
  const Tensor inputs = index_tensor({3, kTokens}, kVocabulary, "inputs");
  const Tensor targets = index_tensor({3, kTokens}, kVocabulary, "targets");
  const auto all_targets = targets.to_vector<std::int32_t>();
  std::mt19937 random(7);
  for (const std::int64_t row : {0, 2}) {
    const Tensor tokens = inputs.slice(row, row + 1).reshape({kTokens});
    KeyValueCache cache(whole.model->shape());
    const std::vector<std::int64_t> feeds = {7, 1, 1, 3, 1};  // then at random
    for (std::size_t i = 0; cache.length < kTokens; ++i) {
      const std::int64_t first = cache.length;
      const std::int64_t wanted =
          i < feeds.size() ? feeds[i] : std::uniform_int_distribution<std::int64_t>(1, 40)(random);
      const std::int64_t last = std::min(kTokens, first + wanted) - 1;
      const Tensor logits = whole.model->next_logits(tokens.slice(first, last + 1), cache);
      CAPTURE(row, first, last);
      CHECK(loss_by(logits, all_targets[static_cast<std::size_t>(row * kTokens + last)]) ==
            training_loss(whole, inputs, targets, row, last));
    }
  }
}

}  // namespace tessera
