#include "tools/train/session.h"

#include <cmath>

#include "autograd/engine.h"
#include "autograd/freeze.h"
#include "models/gpt2.h"
#include "models/hugging_face.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/decay_rule.h"
#include "optim/schedule.h"
#include "optim/sgd.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/checkpointing.h"
#include "sharding/gradient_norm.h"

namespace tessera {
namespace {

/// The preset, or the folder to start from, with what the configuration says beside it. A
/// pretrained model's sizes can be repeated but not changed.
Gpt2Config sizes_of(const ModelConfig& config, std::int64_t vocab_size) {
  const bool pretrained = !config.init_from.empty();
  Gpt2Config sizes = pretrained ? read_gpt2_config(config.init_from) : gpt2_preset(config.preset);
  if (!pretrained && vocab_size > 0) sizes.vocab_size = vocab_size;
  const auto set = [&](std::string_view key, std::int64_t& size, std::int64_t configured) {
    if (configured == 0) return;
    check(!pretrained || configured == size,
          "{} is {}, but the model in {} has {}; leave the key out", key, configured,
          config.init_from.string(), size);
    size = configured;
  };
  set("model.layers", sizes.layers, config.layers);
  set("model.heads", sizes.heads, config.heads);
  set("model.width", sizes.width, config.width);
  set("model.context", sizes.context, config.context);
  set("model.vocab_size", sizes.vocab_size, config.vocab_size);
  sizes.dropout = config.dropout;
  return sizes;
}

std::unique_ptr<LanguageModel> make_model(const Config& config, std::int64_t vocab_size) {
  auto model = std::make_unique<Gpt2>(sizes_of(config.model, vocab_size));
  check(model->vocab_size() >= vocab_size,
        "vocabulary mismatch: the data has token ids up to {}, but the model knows {} tokens",
        vocab_size - 1, model->vocab_size());
  check(config.data.sequence_length <= model->context_length(),
        "data.sequence_length {} is longer than the model's context of {}; shorten it or raise "
        "model.context",
        config.data.sequence_length, model->context_length());
  freeze(*model, config.model.frozen);
  return model;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Strategy& strategy) {
  std::vector<ParameterShard> shards;
  for (const Shard& shard : strategy.shards()) {
    if (!shard.parameter.trainable()) continue;
    const std::string& name = shard.parameter.name();
    shards.push_back({.name = name,
                      .data = shard.data,
                      .gradient = shard.gradient,
                      .decay = decays(name, shard.parameter.shape())});
  }
  if (config.name == "sgd") {
    return std::make_unique<Sgd>(std::move(shards),
                                 SgdOptions{.momentum = config.momentum,
                                            .nesterov = config.nesterov,
                                            .weight_decay = config.weight_decay});
  }
  return std::make_unique<AdamW>(std::move(shards),
                                 AdamWOptions{.beta1 = config.beta1,
                                              .beta2 = config.beta2,
                                              .epsilon = config.epsilon,
                                              .weight_decay = config.weight_decay});
}

ScheduleOptions schedule_of(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  return {.kind = schedule_kind_from_name(optimizer.schedule),
          .learning_rate = optimizer.learning_rate,
          .minimum_ratio = optimizer.minimum_learning_rate_ratio,
          .warmup_steps = optimizer.warmup_steps,
          .total_steps = config.train.steps,
          .decay_steps = optimizer.decay_steps};
}

std::vector<Tensor> gradients_of(const Strategy& strategy) {
  std::vector<Tensor> gradients;
  for (const Shard& shard : strategy.shards()) {
    if (shard.parameter.trainable()) gradients.push_back(shard.gradient);
  }
  return gradients;
}

}  // namespace

TrainingSession::TrainingSession(const Config& config, std::int64_t vocab_size)
    : config_(config), model_(make_model(config, vocab_size)) {
  strategy_ = make_single_strategy(model_->units(), static_cast<std::uint64_t>(config.train.seed));
  if (!config.model.init_from.empty()) {
    load_parameters(config.model.init_from, strategy_->shards());
  }
  set_checkpointing(model_->units(), config.sharding.activation_checkpointing);
  optimizer_ = make_optimizer(config.optimizer, *strategy_);
}

TrainingSession::~TrainingSession() = default;

StepResult TrainingSession::step(std::int64_t step, const BatchSource& source) {
  strategy_->start_step();
  StepResult result;
  result.loss = accumulate_gradients(step, source);
  {
    const Span span("backward");
    strategy_->finish_backward();
  }
  const Span span("optimizer");
  result.gradient_norm = gradient_norm(gradients_of(*strategy_));
  check(std::isfinite(result.loss) && std::isfinite(result.gradient_norm),
        "step {}: the loss is {} and the gradient norm {}; the run stops before the parameters are "
        "touched. Lower optimizer.learning_rate, lengthen optimizer.warmup_steps or check the data",
        step, result.loss, result.gradient_norm);
  result.learning_rate = learning_rate_at(schedule_of(config_), step - 1);
  optimizer_->step(result.learning_rate,
                   clip_scale(result.gradient_norm, config_.optimizer.clip_norm));
  return result;
}

float TrainingSession::accumulate_gradients(std::int64_t step, const BatchSource& source) {
  const std::int64_t micro_batches = config_.data.accumulation_steps;
  const std::int64_t rows = config_.data.batch_size / micro_batches;
  const double tokens = static_cast<double>(config_.data.batch_size * config_.data.sequence_length);
  float total = 0.0f;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    context().random() = {.seed = static_cast<std::uint64_t>(config_.train.seed),
                          .step = static_cast<std::uint64_t>(step),
                          .micro_batch = static_cast<std::uint64_t>(i)};
    Batch batch;
    {
      const Span span("data");
      batch = source(step, i * rows, rows);
    }
    Variable loss;
    {
      const Span span("forward");
      loss = model_->loss(batch.inputs, batch.targets, 1.0 / tokens, /*training=*/true);
      total += loss.data().item<float>();
    }
    const Span span("backward");
    backward(loss);
  }
  return total;
}

float TrainingSession::evaluate(std::int64_t batches, const BatchSource& source) {
  const NoGradient no_gradient;
  const std::int64_t rows = config_.data.batch_size / config_.data.accumulation_steps;
  double total = 0.0;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < batches; ++i) {
    for (std::int64_t first = 0; first < config_.data.batch_size; first += rows) {
      const Batch batch = source(i, first, rows);
      const auto count = static_cast<double>(batch.inputs.numel());
      const Variable loss =
          model_->loss(batch.inputs, batch.targets, 1.0 / count, /*training=*/false);
      total += loss.data().item<float>() * count;
      tokens += batch.inputs.numel();
    }
  }
  return static_cast<float>(total / static_cast<double>(tokens));
}

std::int64_t TrainingSession::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_of(*model_)) count += parameter.numel();
  return count;
}

}  // namespace tessera
