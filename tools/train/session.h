// TrainingSession: a model, its strategy and its optimizer, and one step of training with them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "models/language_model.h"
#include "optim/optimizer.h"
#include "sharding/strategy.h"
#include "tools/config/config.h"
#include "tools/data/loader.h"

namespace tessera {

struct StepResult {
  /// Mean cross-entropy of the step's tokens, before the update.
  float loss = 0.0f;
  /// Norm of the whole gradient, before clipping.
  double gradient_norm = 0.0;
  double learning_rate = 0.0;
};

class TrainingSession {
 public:
  /// The model named in `config` with initial or loaded parameters. `vocab_size` is that of the
  /// data, 0 if unknown; the config may ask for more. Raises Error if the two do not fit.
  TrainingSession(const Config& config, std::int64_t vocab_size);
  ~TrainingSession();

  /// Rows [first_row, first_row + rows) of the batch of step `step`.
  using BatchSource =
      std::function<Batch(std::int64_t step, std::int64_t first_row, std::int64_t rows)>;

  /// One update, `step` counted from 1, on accumulation_steps micro-batches. Its time is in the
  /// profiler's spans data, forward, backward and optimizer. Raises Error, before the parameters
  /// are touched, if the loss or the gradient is not finite.
  StepResult step(std::int64_t step, const BatchSource& source);

  /// Mean cross-entropy over `batches` batches that `source` makes (steps 0, 1, ...), without
  /// gradients.
  float evaluate(std::int64_t batches, const BatchSource& source);

  LanguageModel& model() { return *model_; }
  const Strategy& strategy() const { return *strategy_; }
  std::int64_t parameter_count() const;

 private:
  float accumulate_gradients(std::int64_t step, const BatchSource& source);

  Config config_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace tessera
