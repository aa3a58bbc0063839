// TrainingSession: one rank's model, strategy and optimizer, and one step of training with them.
//
// A step's batch is cut into micro-batches, rows next to each other, that are dealt to the ranks in
// turn: accumulation step i on rank r of N computes number i * N + r. So K accumulation steps on
// one rank see what K ranks see together, and dropout, addressed by that number, drops the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "models/language_model.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "sharding/strategy/strategy.h"
#include "tools/data/loader.h"
#include "tools/train/resolve.h"

namespace tessera {

struct StepResult {
  /// Mean cross-entropy of the step's tokens, before the update.
  float loss = 0.0f;
  /// Norm of the whole gradient, before clipping. Not finite: the step was skipped (f16 only).
  double gradient_norm = 0.0;
  double learning_rate = 0.0;
};

/// Every rank of `world`, which must outlive the session, makes one and makes the same calls.
class TrainingSession {
 public:
  /// The model with initial or loaded parameters. Raises Error if the configuration does not suit
  /// so many ranks.
  TrainingSession(const ResolvedConfig& run, Communicator& world);
  ~TrainingSession();

  /// Rows [first_row, first_row + rows) of the batch of step `step`.
  using BatchSource =
      std::function<Batch(std::int64_t step, std::int64_t first_row, std::int64_t rows)>;

  /// One update, `step` counted from 1, on accumulation_steps micro-batches per rank. Its time is
  /// in the profiler's spans data, forward, backward and optimizer. The result is that of the whole
  /// batch and the same on every rank. If the loss or the gradient is not finite, raises Error
  /// before the parameters are touched; in f16 the step is skipped and the loss scale lowered
  /// instead, as far as it goes.
  StepResult step(std::int64_t step, const BatchSource& source);

  /// Mean cross-entropy over `batches` batches that `source` makes (steps 0, 1, ...), without
  /// gradients; the same on every rank.
  float evaluate(std::int64_t batches, const BatchSource& source);

  LanguageModel& model() { return *model_; }
  Strategy& strategy() { return *strategy_; }
  std::int64_t parameter_count() const;
  /// What a rank computes at a time.
  std::int64_t rows_per_micro_batch() const;

 private:
  /// Forward and backward of this rank's micro-batches; returns their part of the loss times
  /// `scale`, [1] f32.
  Tensor accumulate_gradients(std::int64_t step, double scale, const BatchSource& source);
  /// In place.
  void sum_over_ranks(const Tensor& value) const;
  /// Clips and updates. Where the norm or the loss is not finite nothing changes.
  void update_parameters(double learning_rate, const GradientNorm& norm, const Tensor& loss,
                         double loss_scale);

  ResolvedConfig run_;
  Communicator& world_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Optimizer> optimizer_;
  /// In f16 only.
  std::optional<LossScaler> scaler_;
};

}  // namespace tessera
