// A language model with memory: one rank owns all parameters.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "autograd/freeze.h"
#include "kernels/cast/op.h"
#include "models/gpt2/model.h"
#include "models/hugging_face.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/safetensors.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

/// A folder below tests/golden: "gpt2/plain".
inline std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden" / name;
}

inline nlohmann::json golden_config(const std::string& name) {
  return read_json_file(golden_folder(name) / "config.json");
}

inline NamedTensors golden_weights(const std::string& name) {
  const SafetensorsFile file(golden_folder(name) / "model.safetensors");
  NamedTensors weights;
  for (const auto& [tensor, info] : file.tensors())
    weights.emplace_back(tensor, file.tensor(tensor));
  return weights;
}

/// The message about a golden model's config.json with another value for a key.
inline std::string refusal(const std::string& name, const std::string& key,
                           const nlohmann::json& value) {
  nlohmann::json config = golden_config(name);
  config[key] = value;
  return error_of([&] { family_of(config).config_from(config); });
}

/// The factor that turns a sum of losses into their mean over the valid targets.
inline double mean_scale(const Tensor& targets) {
  return 1.0 / static_cast<double>(valid_targets(targets));
}

struct WholeModel {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<Strategy> strategy;

  explicit WholeModel(std::unique_ptr<LanguageModel> without_memory, std::uint64_t seed = 1,
                      const std::string& frozen = "")
      : model(std::move(without_memory)) {
    freeze(*model, frozen);
    strategy = make_single_strategy(model->units(), seed);
  }
  explicit WholeModel(const Gpt2Config& config, std::uint64_t seed = 1,
                      const std::string& frozen = "")
      : WholeModel(std::make_unique<Gpt2>(config), seed, frozen) {}
  explicit WholeModel(const std::filesystem::path& folder) : WholeModel(make_pretrained(folder)) {
    load_parameters(folder, strategy->shards());
  }

  const std::vector<Shard>& shards() const { return strategy->shards(); }

  /// Opens the parameters' windows on copies of the f32 masters as they are now, rounded to
  /// `dtype`; gradients stay f32.
  void compute_in(DType dtype) const {
    for (const Shard& shard : shards()) {
      const Tensor rounded = Tensor::empty(shard.parameter.shape(), dtype);
      cast(rounded, shard.data.reshape(shard.parameter.shape()));
      shard.parameter.open(rounded);
    }
  }

  /// The mean loss, without a graph.
  float evaluate(const Tensor& inputs, const Tensor& targets,
                 const Tensor& document_starts = Tensor()) const {
    const NoGradient no_gradient;
    return model->loss(inputs, targets, mean_scale(targets), /*training=*/false, document_starts)
        .data()
        .item<float>();
  }

  /// One training step's forward and backward pass, of `scale` times the mean loss; the gradients
  /// are in the shards then.
  float differentiate(const Tensor& inputs, const Tensor& targets, double scale = 1.0,
                      const Tensor& document_starts = Tensor()) const {
    Step step = strategy->start_step();
    const Variable loss = model->loss(inputs, targets, scale * mean_scale(targets),
                                      /*training=*/true, document_starts);
    backward(loss);
    step.finish_micro_batch();
    step.discard();  // the tests update in their own ways
    return loss.data().item<float>();
  }

  /// The loss and every gradient of one training step, to be compared bit for bit.
  std::vector<std::vector<float>> step_bits(const Tensor& inputs, const Tensor& targets) const {
    std::vector<std::vector<float>> bits = {{differentiate(inputs, targets)}};
    for (const Shard& shard : shards()) bits.push_back(shard.gradient.to_vector<float>());
    return bits;
  }

  const Shard& shard(const std::string& name) const {
    for (const Shard& shard : shards()) {
      if (shard.parameter.name() == name) return shard;
    }
    fail("the model has no parameter '{}'", name);
  }
};

/// Reads half of every parameter, from 1 / from_part of it on, and compares it with the whole.
inline void check_reads_parts(const std::filesystem::path& folder, const WholeModel& whole,
                              std::int64_t from_part) {
  std::vector<Shard> shards = whole.shards();
  for (Shard& shard : shards) {
    shard.first = shard.parameter.numel() / from_part;
    shard.data = Tensor::zeros({shard.parameter.numel() / 2}, DType::f32);
  }
  load_parameters(folder, shards);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const Tensor flat = whole.shards()[i].data.reshape({shards[i].parameter.numel()});
    const std::int64_t end = shards[i].first + shards[i].data.numel();
    check(same_bits(shards[i].data, flat.slice(shards[i].first, end)), "{} has other values",
          shards[i].parameter.name());
  }
}

}  // namespace tessera::test
