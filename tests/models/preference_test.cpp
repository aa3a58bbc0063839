// Losses of pairs against TRL's on the same weights. tests/golden/README.md describes the files.
#include "kernels/preference/op.h"

#include <catch2/catch.hpp>

#include "kernels/cross_entropy/op.h"
#include "tests/models/whole_model.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::golden_folder;
using test::relative_error;
using test::to_doubles;

constexpr double kTolerance = 1e-5;
constexpr std::int64_t kLength = 32;

/// The golden pairs in our layout: a pair in each row, and padding behind it.
struct PackedPairs {
  std::vector<std::int32_t> inputs, targets, starts;
  std::vector<float> reference;
  std::int64_t pairs;

  explicit PackedPairs(const SafetensorsFile& file) {
    const Tensor ids = file.tensor("input_ids");
    pairs = ids.size(0) / 2;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const auto row = static_cast<std::size_t>(pair * kLength);
      add(file, pair, row);
      add(file, pairs + pair, row);
      const auto place = static_cast<std::int32_t>(inputs.size() - row);
      inputs.resize(row + kLength, 0);
      targets.resize(inputs.size(), kIgnoreIndex);
      starts.resize(inputs.size(), place);
      reference.resize(inputs.size(), 0.0f);
    }
  }
  Tensor tensor(const auto& values) const { return Tensor::from(values, {pairs, kLength}); }

 private:
  void add(const SafetensorsFile& file, std::int64_t document, std::size_t row) {
    const auto values = [&](const char* name) {
      return file.tensor(name).slice(document, document + 1).to_vector<std::int32_t>();
    };
    const auto ids = values("input_ids"), attends = values("attention_mask"),
               counts = values("completion_mask");
    const auto place = static_cast<std::int32_t>(inputs.size() - row);
    const double of_reference =
        file.tensor("reference").to_vector<double>()[static_cast<std::size_t>(document)];
    for (std::size_t i = 0; i < ids.size() && attends[i] != 0; ++i) {
      const bool has_target = i + 1 < ids.size() && counts[i + 1] != 0;
      inputs.push_back(ids[i]);
      targets.push_back(has_target ? ids[i + 1] : kIgnoreIndex);
      starts.push_back(place);
      reference.push_back(i == 0 ? static_cast<float>(of_reference) : 0.0f);
    }
  }
};

}  // namespace

TEST_CASE("preference losses and their gradients equal TRL's for dpo, ipo and simpo") {
  const test::Rank rank;
  const SafetensorsFile expected(golden_folder("preference") / "expected.safetensors");
  const PackedPairs pairs(expected);
  const Tensor targets = pairs.tensor(pairs.targets), starts = pairs.tensor(pairs.starts);
  const Tensor reference = pairs.tensor(pairs.reference);
  using Kind = PreferenceKind;
  const std::vector<std::pair<std::string, PreferenceLoss>> cases = {
      {"dpo", {.kind = Kind::dpo, .beta = 0.3}},
      {"smoothed", {.kind = Kind::dpo, .beta = 0.3, .label_smoothing = 0.15}},
      {"ipo", {.kind = Kind::ipo, .beta = 0.3}},
      {"simpo", {.kind = Kind::simpo, .beta = 0.3, .margin = 0.4}},
      {"simpo_smoothed",
       {.kind = Kind::simpo, .beta = 0.3, .label_smoothing = 0.15, .margin = 0.4}}};
  for (const auto& [name, options] : cases) {
    CAPTURE(name);
    const test::WholeModel whole(golden_folder("gpt2/plain"));
    const auto objective = [&, options = options](Out loss, Out factors, const Tensor& losses) {
      const Tensor sums = Tensor::empty({kPreferenceSums}, losses.dtype());
      const Shape rows{pairs.pairs, kLength};
      preference_loss(sums, factors.reshape(rows), {}, losses.reshape(rows), targets, starts,
                      reference, options, 1.0 / static_cast<double>(pairs.pairs));
      loss.copy_from(sums.slice(0, 1));
    };
    Step step = whole.strategy->start_step();
    const Variable loss = whole.model->loss(pairs.tensor(pairs.inputs), targets, 1.0,
                                            /*training=*/true, starts, objective);
    backward(loss);
    step.finish_micro_batch();
    step.discard();
    CHECK(relative_error(to_doubles(loss.data()), to_doubles(expected.tensor(name + ".loss"))) <
          kTolerance);
    int gradients = 0;
    for (const Shard& shard : whole.shards()) {
      const std::string gradient = name + ".grad." + shard.parameter.name();
      if (!expected.contains(gradient)) continue;
      CAPTURE(gradient);
      CHECK(relative_error(to_doubles(shard.gradient), to_doubles(expected.tensor(gradient))) <
            kTolerance);
      ++gradients;
    }
    CHECK(gradients == 3);
  }
}

}  // namespace tessera
