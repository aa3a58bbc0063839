// Packed documents: whole models give each document the numbers that it has alone.
#include "models/documents.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/models/tiny.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kVocabulary;
using test::same_bits;
using test::WholeModel;
using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kPackedTokens = 23;
constexpr std::int32_t kIgnored = -100;

/// With a context of kPackedTokens.
std::unique_ptr<LanguageModel> make_tiny(const std::string& preset) {
  Hyperparameters hyperparameters = test::tiny(preset);
  std::visit([](auto& config) { config.context = kPackedTokens; }, hyperparameters);
  return make_model(hyperparameters);
}

/// A document in a row of a batch.
struct Place {
  std::int64_t row, first, tokens;
};

/// Two rows of documents: of 9, 1 and 13 tokens, and of 16 and 7.
const std::vector<Place> kPlaces = {{0, 0, 9}, {0, 9, 1}, {0, 10, 13}, {1, 0, 16}, {1, 16, 7}};

Tensor packed_starts() {
  Ids starts(2 * kPackedTokens);
  for (const Place& place : kPlaces) {
    for (std::int64_t t = place.first; t < place.first + place.tokens; ++t) {
      starts[place.row * kPackedTokens + t] = static_cast<std::int32_t>(place.first);
    }
  }
  return Tensor::from(starts, {2, kPackedTokens});
}

Ids tokens(const std::string& name) {
  return test::index_tensor({2, kPackedTokens}, kVocabulary, name).to_vector<std::int32_t>();
}

/// The ids of one document, [1, T].
Tensor alone(const Ids& ids, const Place& place) {
  const auto begin = ids.begin() + place.row * kPackedTokens + place.first;
  return Tensor::from(Ids(begin, begin + place.tokens), {1, place.tokens});
}

/// The targets of one document; those of the others are ignored.
Tensor targets_of(const Ids& targets, const Place& place) {
  Ids result(targets.size(), kIgnored);
  const std::int64_t first = place.row * kPackedTokens + place.first;
  std::copy_n(targets.begin() + first, place.tokens, result.begin() + first);
  return Tensor::from(result, {2, kPackedTokens});
}

/// The gradients of the sum of losses, to be compared bit for bit, after the loss.
std::vector<Tensor> gradients(const WholeModel& whole, const Tensor& inputs, const Tensor& targets,
                              const Tensor& starts) {
  Step step = whole.strategy->start_step();
  const Variable loss = whole.model->loss(inputs, targets, 0.125, /*training=*/true, starts);
  backward(loss);
  step.finish_micro_batch();
  step.discard();
  std::vector<Tensor> result = {loss.data().clone()};
  for (const Shard& shard : whole.shards()) result.push_back(shard.gradient.clone());
  return result;
}

}  // namespace

TEST_CASE("documents start at their token and at every row, and positions count from there") {
  const test::Rank rank;
  const Tensor starts = document_starts(Ids{5, 1, 2, 5, 5, 1, 2, 3, 5, 1}, 5, 5);
  REQUIRE(starts.shape() == Shape{2, 5});
  REQUIRE(starts.to_vector<std::int32_t>() == Ids{0, 0, 0, 3, 4, 0, 0, 0, 3, 3});
  REQUIRE(document_positions(starts).to_vector<std::int32_t>() ==
          Ids{0, 1, 2, 0, 0, 0, 1, 2, 0, 1});
  REQUIRE(document_starts(Ids{}, 5, 5).shape() == Shape{0, 5});
}

TEST_CASE("starts that no document has are refused, with their place") {
  const test::Rank rank;
  const auto positions = [](const Ids& starts) {
    return document_positions(Tensor::from(starts, {2, 3}));
  };
  REQUIRE_THROWS_WITH(positions({0, 0, 0, 0, 0, 1}), Contains("row 1") && Contains("at 2") &&
                                                         Contains("start at 1") &&
                                                         Contains("expected 0"));
  REQUIRE_THROWS_WITH(positions({0, 1, 0, 0, 0, 0}), Contains("row 0") && Contains("start at 0"));
  REQUIRE_THROWS_WITH(positions({0, 1, 2, 2, 2, 2}), Contains("row 1") && Contains("start at 2"));
  REQUIRE_THROWS_WITH(document_positions(Tensor::from(Ids{0}, {1})), Contains("[B, T]"));
  const WholeModel whole(make_tiny("llama3-mini"));
  REQUIRE_THROWS_WITH(
      whole.model->logits(Tensor::zeros({1, 4}, DType::i32), Tensor::zeros({1, 3}, DType::i32)),
      Contains("documents' starts are") && Contains("[1, 4]"));
}

TEST_CASE("packed documents have the logits of each document alone, bit for bit") {
  const test::Rank rank;
  const WholeModel whole(make_tiny(GENERATE(from_range(test::kPresets))));
  whole.compute_in(GENERATE(DType::f32, DType::bf16));
  const NoGradient no_gradient;
  const Ids ids = tokens("inputs");
  const Tensor logits = whole.model->logits(Tensor::from(ids, {2, kPackedTokens}), packed_starts())
                            .data()
                            .reshape({2 * kPackedTokens, kVocabulary});
  const Tensor joined = whole.model->logits(Tensor::from(ids, {2, kPackedTokens}))
                            .data()
                            .reshape({2 * kPackedTokens, kVocabulary});
  for (const Place& place : kPlaces) {
    CAPTURE(place.row, place.first);
    // In copies, because a library may round a product of few rows in another order.
    const std::int64_t copies = 2 * kPackedTokens / place.tokens;
    const Ids document = alone(ids, place).to_vector<std::int32_t>();
    Ids all;
    for (std::int64_t i = 0; i < copies; ++i)
      all.insert(all.end(), document.begin(), document.end());
    const Tensor expected = whole.model->logits(Tensor::from(all, {copies, place.tokens})).data();
    const std::int64_t first = place.row * kPackedTokens + place.first;
    const Tensor rows = logits.slice(first, first + place.tokens);
    CHECK(same_bits(rows, expected.slice(0, 1).reshape(rows.shape())));
    CHECK(same_bits(rows, joined.slice(first, first + place.tokens)) == (place.first == 0));
  }
}

TEST_CASE("packed documents have the gradients of each document alone") {
  const test::Rank rank;
  const WholeModel whole(make_tiny(GENERATE(from_range(test::kPresets))));
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  whole.compute_in(dtype);
  const Ids ids = tokens("inputs"), next = tokens("targets");
  const Tensor packed = Tensor::from(ids, {2, kPackedTokens});
  for (const Place& place : kPlaces) {
    if (place.tokens == 1) continue;  // its queries and keys have no gradient, only rounding
    CAPTURE(place.row, place.first);
    const auto in_pack = gradients(whole, packed, targets_of(next, place), packed_starts());
    const auto expected = gradients(whole, alone(ids, place), alone(next, place), Tensor());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i == 0 ? "loss" : whole.shards()[i - 1].parameter.name());
      // Sums over rows are cut by the number of rows, so they may round in another order. (1.1e-6 was
      // seen on an H100, in f32.)
      CHECK(test::relative_error(test::to_doubles(in_pack[i]), test::to_doubles(expected[i])) <
            (dtype == DType::f32 ? 4e-6 : 1e-2));
    }
  }
}

TEST_CASE("no bit of a document's loss and gradients depends on the documents next to it") {
  const test::Rank rank;
  const WholeModel whole(
      make_tiny(GENERATE("gpt2-mini", "llama3-mini", "qwen3-mini", "mistral-7b", "gemma3-mini")));
  whole.compute_in(GENERATE(DType::f32, DType::bf16));
  for (const auto& unit : whole.model->units()) unit->set_checkpointing(GENERATE(false, true));
  const Ids ids = tokens("inputs"), others = tokens("others"), next = tokens("targets");
  for (const Place& place : kPlaces) {
    CAPTURE(place.row, place.first);
    Ids changed = others;
    const std::int64_t first = place.row * kPackedTokens + place.first;
    std::copy_n(ids.begin() + first, place.tokens, changed.begin() + first);
    const auto before = gradients(whole, Tensor::from(ids, {2, kPackedTokens}),
                                  targets_of(next, place), packed_starts());
    const auto after = gradients(whole, Tensor::from(changed, {2, kPackedTokens}),
                                 targets_of(next, place), packed_starts());
    for (std::size_t i = 0; i < before.size(); ++i) {
      CAPTURE(i == 0 ? "loss" : whole.shards()[i - 1].parameter.name());
      CHECK(same_bits(before[i], after[i]));
    }
  }
}

}  // namespace tessera
