#include "tools/train/session.h"

#include <cmath>

#include "autograd/checkpointing.h"
#include "autograd/engine.h"
#include "kernels/add/op.h"
#include "kernels/gradient_norm/op.h"
#include "models/hugging_face.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "tools/config/parse.h"
#include "tools/train/optimizer.h"

namespace tessera {
TrainingSession::TrainingSession(const ResolvedConfig& run, Communicator& world)
    : run_(run), world_(world), model_(make_model(run)) {
  check_ranks(run, world.size());
  const Config& config = run.config;
  strategy_ = make_strategy(model_->units(), run.sharding,
                            static_cast<std::uint64_t>(config.train.seed), &world);
  if (!config.model.init_from.empty()) {
    load_parameters(config.model.init_from, strategy_->shards());
    strategy_->weights_changed();
  }
  check_with_place(config, [&] {
    set_checkpointing(model_->units(), config.sharding.activation_checkpointing);
  });
  if (run.sharding.compute_dtype == DType::f16) scaler_.emplace();
  optimizer_ = make_optimizer(config.optimizer, strategy_->shards());
}

TrainingSession::~TrainingSession() = default;

StepResult TrainingSession::step(std::int64_t step, const BatchSource& source) {
  const double scale = scaler_ ? scaler_->scale() : 1.0;
  strategy_->start_step();
  const Tensor loss = accumulate_gradients(step, scale, source);
  const Span span("optimizer");
  sum_over_ranks(loss);
  const GradientNorm norm = strategy_->gradient_norm();
  const double learning_rate = learning_rate_at(run_.schedule, step - 1);
  update_parameters(learning_rate, norm, loss, scale);

  // Everything is queued; here the host waits for the device.
  const StepResult result = {.loss = static_cast<float>(loss.item<float>() / scale),
                             .gradient_norm = norm.value() / scale,
                             .learning_rate = learning_rate};
  const bool finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  const bool may_skip = scaler_ && scale > LossScaler::kLeast;
  if (!finite) optimizer_->set_steps(optimizer_->steps() - 1);  // it has changed nothing
  check(finite || may_skip,
        "step {}: the loss is {} and the gradient norm {}; the run stops before the parameters are "
        "touched. Lower optimizer.learning_rate, lengthen optimizer.warmup_steps or check the data",
        step, result.loss, result.gradient_norm);
  if (scaler_) scaler_->update(finite);
  return result;
}

void TrainingSession::update_parameters(double learning_rate, const GradientNorm& norm,
                                        const Tensor& loss, double loss_scale) {
  const Tensor factor = Tensor::empty({1}, DType::f32);
  clip_factor(factor, norm, loss,
              {.max_norm = run_.config.optimizer.clip_norm, .loss_scale = loss_scale});
  optimizer_->step(learning_rate, factor);
  strategy_->weights_changed();
}

Tensor TrainingSession::accumulate_gradients(std::int64_t step, double scale,
                                             const BatchSource& source) {
  const std::int64_t micro_batches = run_.config.data.accumulation_steps;
  const std::int64_t rows = rows_per_micro_batch();
  const auto tokens = static_cast<double>(tokens_per_step(run_.config.data));
  const Tensor total = Tensor::zeros({1}, DType::f32);
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    const std::int64_t micro_batch = i * world_.size() + world_.rank();
    context().random() = {.seed = static_cast<std::uint64_t>(run_.config.train.seed),
                          .step = static_cast<std::uint64_t>(step),
                          .micro_batch = static_cast<std::uint64_t>(micro_batch)};
    Batch batch;
    {
      const Span span("data");
      batch = source(step, micro_batch * rows, rows);
    }
    Variable loss;
    {
      const Span span("forward");
      loss = model_->loss(batch.inputs, batch.targets, scale / tokens, /*training=*/true);
      add(total, total, loss.data());
    }
    const Span span("backward");
    backward(loss);
    strategy_->finish_backward();
  }
  return total;
}

float TrainingSession::evaluate(std::int64_t batches, const BatchSource& source) {
  const NoGradient no_gradient;
  const std::int64_t rows = rows_per_micro_batch();
  const auto all_tokens = static_cast<double>(batches * tokens_per_step(run_.config.data));
  double total = 0.0;
  for (std::int64_t i = 0; i < batches; ++i) {
    for (std::int64_t first = world_.rank() * rows; first < run_.config.data.batch_size;
         first += world_.size() * rows) {
      const Batch batch = source(i, first, rows);
      const auto count = static_cast<double>(batch.inputs.numel());
      const Variable loss =
          model_->loss(batch.inputs, batch.targets, 1.0 / count, /*training=*/false);
      total += loss.data().item<float>() * count;
    }
  }
  const Tensor mean = Tensor::from(std::vector{static_cast<float>(total / all_tokens)}, {1});
  sum_over_ranks(mean);
  return mean.item<float>();
}

void TrainingSession::sum_over_ranks(const Tensor& value) const {
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  wait_for_communication(world_.all_reduce({value}, stream, "loss"));
}

std::int64_t TrainingSession::rows_per_micro_batch() const {
  return run_.config.data.batch_size / (run_.config.data.accumulation_steps * world_.size());
}

std::int64_t TrainingSession::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_of(*model_)) count += parameter.numel();
  return count;
}

}  // namespace tessera
