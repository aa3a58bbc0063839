// Training and generation compute the same bits of a token's log-probability.
#include <algorithm>
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

constexpr std::int64_t kRowTokens = 150;
constexpr std::int64_t kSmallVocabulary = 131;

/// A preset of two layers and odd sizes, with a context of kRowTokens.
Hyperparameters small_hyperparameters(const std::string& preset) {
  Hyperparameters hyperparameters = model_preset(preset);
  std::visit(
      [](auto& config) {
        config.vocab_size = kSmallVocabulary;
        config.context = kRowTokens;
        config.layers = 2;
        config.heads = 3;
        config.width = 3 * 26;
        if constexpr (requires { config.kv_heads; }) {
          config.kv_heads = 1;
          config.mlp_width = 201;
        }
        if constexpr (requires { config.expert_width; }) config.expert_width = 67;
        if constexpr (requires { config.nope_every; }) config.nope_every = 2;
        if constexpr (requires { config.window; }) config.window = config.window > 0 ? 37 : 0;
      },
      hyperparameters);
  return hyperparameters;
}

WholeModel small_model(const std::string& preset) {
  return WholeModel(make_model(small_hyperparameters(preset)));
}

/// log p of target `t` of row `row`: the only term of a training step's loss.
float in_training(const WholeModel& whole, const Tensor& inputs, const Tensor& targets,
                  std::int64_t row, std::int64_t t) {
  std::vector<std::int32_t> only(static_cast<std::size_t>(targets.numel()), kIgnoreIndex);
  const auto at = static_cast<std::size_t>(row * targets.size(1) + t);
  only[at] = targets.to_vector<std::int32_t>()[at];
  return -whole.model
              ->loss(inputs, Tensor::from(only, targets.shape()), /*loss_scale=*/1.0,
                     /*training=*/true)
              .data()
              .item<float>();
}

/// log p of `target` by the logits of one token.
float by_logits(const Tensor& logits, std::int32_t target) {
  return log_probabilities_of(logits.reshape({1, logits.numel()}),
                              Tensor::from(std::vector{target}, {1}))
      .item<float>();
}

struct Case {
  std::string preset;
  DType dtype;
};

const std::vector<Case> kCases = {
    {"gpt2-mini", DType::f32},      {"gpt2-mini", DType::bf16},      {"llama3-mini", DType::f32},
    {"llama3-mini", DType::bf16},   {"qwen3-mini", DType::f32},      {"qwen3-mini", DType::bf16},
    {"qwen3-moe-mini", DType::f32}, {"qwen3-moe-mini", DType::bf16}, {"llama4-mini", DType::f32},
    {"llama4-mini", DType::bf16},   {"mistral-7b", DType::f32},      {"mistral-7b", DType::bf16},
    {"olmo2-mini", DType::f32},     {"olmo2-mini", DType::bf16},     {"gemma3-mini", DType::f32},
    {"gemma3-mini", DType::bf16}};

}  // namespace

TEST_CASE("log_probabilities are the terms of the training forward's loss, bit for bit", "[cpu]") {
  const test::Rank rank(1);  // steps are too short for threads
  const Case c = GENERATE(from_range(kCases));
  CAPTURE(c.preset, name_of(c.dtype));
  const WholeModel whole = small_model(c.preset);
  whole.compute_in(c.dtype);
  const Tensor inputs = index_tensor({2, kRowTokens}, kSmallVocabulary, "inputs");
  const Tensor targets = index_tensor({2, kRowTokens}, kSmallVocabulary, "targets");
  const auto all = whole.model->log_probabilities(inputs, targets).to_vector<float>();
  for (const std::int64_t t : {0, 1, 15, 16, 63, 64, 100, 149}) {
    CAPTURE(t);
    CHECK(all[static_cast<std::size_t>(kRowTokens + t)] ==
          in_training(whole, inputs, targets, 1, t));
  }
  // In a batch of one, and without the tokens that follow.
  for (const std::int64_t tokens : {1, 17, 64, 131}) {
    const auto first = [&](const Tensor& x) {
      return x.slice(1, 2).reshape({kRowTokens}).slice(0, tokens).reshape({1, tokens});
    };
    const auto alone =
        whole.model->log_probabilities(first(inputs), first(targets)).to_vector<float>();
    CHECK(std::equal(alone.begin(), alone.end(), all.begin() + kRowTokens));
  }
}

TEST_CASE("a token's log-probability has the training forward's bits however it was fed", "[cpu]") {
  const test::Rank rank(1);  // steps are too short for threads
  const Case c = GENERATE(from_range(kCases));
  CAPTURE(c.preset, name_of(c.dtype));
  const WholeModel whole = small_model(c.preset);
  whole.compute_in(c.dtype);
  const Tensor inputs = index_tensor({3, kRowTokens}, kSmallVocabulary, "inputs");
  const Tensor targets = index_tensor({3, kRowTokens}, kSmallVocabulary, "targets");
  const auto all_targets = targets.to_vector<std::int32_t>();
  const auto expected = whole.model->log_probabilities(inputs, targets).to_vector<float>();
  std::mt19937 random(7);
  for (const std::int64_t row : {0, 1, 2}) {
    const Tensor tokens = inputs.slice(row, row + 1).reshape({kRowTokens});
    KeyValueCache cache(whole.model->shape());
    const std::vector<std::int64_t> feeds = {7, 1, 1, 3, 1};  // then at random
    for (std::size_t i = 0; cache.length < kRowTokens; ++i) {
      const std::int64_t first = cache.length;
      const std::int64_t most = row == 0 ? 2 : 40;
      const std::int64_t wanted =
          i < feeds.size() ? feeds[i]
                           : std::uniform_int_distribution<std::int64_t>(1, most)(random);
      const std::int64_t last = std::min(kRowTokens, first + wanted) - 1;
      const Tensor logits = whole.model->next_logits(tokens.slice(first, last + 1), cache);
      CAPTURE(row, first, last);
      const auto at = static_cast<std::size_t>(row * kRowTokens + last);
      CHECK(by_logits(logits, all_targets[at]) == expected[at]);
    }
  }
}

TEST_CASE("a token's log-probability has the training forward's bits in any batch of sequences",
          "[cpu]") {
  const test::Rank rank(1);  // steps are too short for threads
  const Case c = GENERATE(from_range(kCases));
  CAPTURE(c.preset, name_of(c.dtype));
  const WholeModel whole = small_model(c.preset);
  whole.compute_in(c.dtype);
  // The same weights, and no table of positions from a longer pass.
  const WholeModel fresh = small_model(c.preset);
  fresh.compute_in(c.dtype);
  constexpr std::int64_t kSequences = 4;
  const Tensor inputs = index_tensor({kSequences, kRowTokens}, kSmallVocabulary, "inputs");
  const Tensor targets = index_tensor({kSequences, kRowTokens}, kSmallVocabulary, "targets");
  const auto expected = whole.model->log_probabilities(inputs, targets).to_vector<float>();
  std::vector<KeyValueCache> caches(kSequences, KeyValueCache(whole.model->shape()));
  std::mt19937 random(11);
  for (bool all_fed = false; !all_fed;) {
    // Some of the sequences, in any order, with any number of tokens and rows of logits each.
    std::vector<std::size_t> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random);
    order.resize(1 + random() % kSequences);
    std::vector<NewTokens> sequences;
    std::vector<std::size_t> places;  // of targets
    for (const std::size_t i : order) {
      const std::int64_t first = caches[i].length;
      const auto wanted = static_cast<std::int64_t>(random() % 3 == 0 ? 1 + random() % 40 : 1);
      const std::int64_t end = std::min(kRowTokens, first + wanted);
      if (first == end) continue;
      const auto row = static_cast<std::int64_t>(i);
      const auto rows = static_cast<std::int64_t>(1 + random() % (end - first));
      sequences.push_back(
          {inputs.slice(row, row + 1).reshape({kRowTokens}).slice(first, end), &caches[i], rows});
      for (std::int64_t place = end - rows; place < end; ++place) {
        places.push_back(static_cast<std::size_t>(row * kRowTokens + place));
      }
    }
    if (!sequences.empty()) {
      const Tensor logits = fresh.model->next_logits(sequences);
      REQUIRE(logits.size(0) == static_cast<std::int64_t>(places.size()));
      for (std::size_t i = 0; i < places.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i);
        const std::int32_t target = targets.to_vector<std::int32_t>()[places[i]];
        CAPTURE(places[i], sequences.size());
        CHECK(by_logits(logits.slice(row, row + 1), target) == expected[places[i]]);
      }
    }
    all_fed = std::all_of(caches.begin(), caches.end(),
                          [](const KeyValueCache& cache) { return cache.length == kRowTokens; });
  }
}

TEST_CASE("where RoPE depends on the sequence's length, the cache's capacity is that length",
          "[cpu]") {
  const test::Rank rank(1);  // steps are too short for threads
  const RopeScaling scaling =
      GENERATE(RopeScaling(DynamicScaling{.factor = 2.0, .original_context = 75.0}),
               RopeScaling(LongRopeScaling{.short_factors = std::vector<double>(13, 1.25),
                                           .long_factors = std::vector<double>(13, 3.0),
                                           .original_context = 75.0,
                                           .amplitude = 1.125}));
  Hyperparameters hyperparameters = small_hyperparameters("llama3-mini");
  auto& config = std::get<LlamaConfig>(hyperparameters);
  config.head_size = 26;
  config.rope.scaling = scaling;
  const WholeModel whole(make_model(hyperparameters)), fresh(make_model(hyperparameters));
  const Tensor inputs = index_tensor({kRowTokens}, kSmallVocabulary, "inputs");
  const Tensor targets = index_tensor({kRowTokens}, kSmallVocabulary, "targets");
  const auto all_targets = targets.to_vector<std::int32_t>();
  // Within the original context, beyond it, and farther.
  const std::vector<std::int64_t> lengths = {75, 76, 150};
  std::vector<std::vector<float>> expected;
  std::vector<KeyValueCache> caches;
  for (const std::int64_t length : lengths) {
    const auto row = [&](const Tensor& x) { return x.slice(0, length).reshape({1, length}); };
    expected.push_back(
        whole.model->log_probabilities(row(inputs), row(targets)).to_vector<float>());
    caches.emplace_back(whole.model->shape(), length);
  }
  const auto begins = [](const auto& row, const auto& longer) {
    return std::equal(row.begin(), row.end(), longer.begin());
  };
  CHECK_FALSE(begins(expected[0], expected[1]));
  const bool dynamic = std::holds_alternative<DynamicScaling>(scaling);
  CHECK(begins(expected[1], expected[2]) != dynamic);
  for (std::int64_t first = 0; first < 75; first += 25) {
    std::vector<NewTokens> sequences;
    for (KeyValueCache& cache : caches)
      sequences.push_back({inputs.slice(first, first + 25), &cache});
    const Tensor logits = fresh.model->next_logits(sequences);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      CAPTURE(first, lengths[i]);
      const auto at = static_cast<std::size_t>(first + 24);
      const auto row = static_cast<std::int64_t>(i);
      CHECK(by_logits(logits.slice(row, row + 1), all_targets[at]) == expected[i][at]);
    }
  }
}

TEST_CASE("a batch with a sequence beyond the context is refused, and no cache grows", "[cpu]") {
  const test::Rank rank(1);  // steps are too short for threads
  const WholeModel whole = small_model("llama3-mini");
  KeyValueCache one(whole.model->shape()), other(whole.model->shape());
  const Tensor few = index_tensor({3}, kSmallVocabulary, "few");
  const Tensor many = index_tensor({kRowTokens + 1}, kSmallVocabulary, "many");
  const std::vector<NewTokens> sequences = {{few, &one}, {many, &other}};
  CHECK_THROWS_WITH(whole.model->next_logits(sequences),
                    Catch::Contains("longer than the model's context of 150"));
  CHECK(one.length == 0);
  CHECK_THROWS_WITH(whole.model->next_logits(std::span<const NewTokens>()),
                    Catch::Contains("no sequence"));
  const std::vector<NewTokens> more_rows = {{few, &one, 4}};
  CHECK_THROWS_WITH(whole.model->next_logits(more_rows),
                    Catch::Contains("logits of 4 of 3 new tokens"));
}

}  // namespace tessera
