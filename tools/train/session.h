// TrainingSession: one rank's model, strategy and optimizer, and one step of training with them.
//
// A step's batch is cut into micro-batches of neighbouring rows. They are dealt to the batch ranks
// (Plan::batch_ranks) in turn: accumulation step i on rank r of N computes number i * N + r. So K
// accumulation steps on one rank see the rows that K ranks see together. Dropout is addressed by that
// number and drops the same elements.
//
// With train.elastic a step has as many micro-batches on any number of ranks. Gradients and losses are
// then added in one tree, in the order of these numbers.
//
// With sharding.context_parallel a batch rank is several ranks, which load the same rows and take their
// tokens (autograd/context_axis.h).
//
// The loss is the sum over targets divided by the number of valid targets in the whole batch, of all
// micro-batches and ranks. So a rank with fewer valid targets counts for less. The loss of pairs
// (train.objective) is likewise their sum divided by the number of pairs in the whole batch.
//
// Passes without gradients are in session_evaluation.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/fp8.h"
#include "models/language_model.h"
#include "models/routers.h"
#include "optim/groups.h"
#include "optim/loss_scaler.h"
#include "sharding/strategy/strategy.h"
#include "tools/data/loader.h"
#include "tools/train/graphed_step.h"
#include "tools/train/pipeline_passes.h"
#include "tools/train/preferences.h"
#include "tools/train/qk_clip.h"
#include "tools/train/resolve.h"
#include "tools/watch/step_watch.h"

namespace tessera {

class OperationObserver;
struct Question;

/// The batches of a session. Every rank has the same source, so every rank can ask for any rows.
class BatchSource {
 public:
  /// Rows [first_row, first_row + rows) of the batch of step `step`.
  using Load = std::function<Batch(std::int64_t step, std::int64_t first_row, std::int64_t rows)>;
  /// The terms that the loss of these rows is the mean of: valid targets (all but -100), or pairs.
  using Count =
      std::function<std::int64_t(std::int64_t step, std::int64_t first_row, std::int64_t rows)>;
  /// Loads these rows early: they are the next that load() is asked for.
  using Stage = std::function<void(std::int64_t step, std::int64_t first_row, std::int64_t rows)>;

  /// The rows of a step's batch.
  using Rows = std::function<std::int64_t(std::int64_t step)>;

  /// Without `count`, targets are counted by loading the rows: right for them, but every rank then
  /// loads the whole batch. Pairs need it. Without `stage`, the device waits while the next rows are loaded.
  /// Without `rows_of`, a batch has data.batch_size rows.
  template <typename Callable>
  BatchSource(Callable load, Count count = {}, Stage stage = {}, Rows rows_of = {})
      : load_(std::move(load)),
        count_(std::move(count)),
        stage_(std::move(stage)),
        rows_of_(std::move(rows_of)) {}

  Batch load(std::int64_t step, std::int64_t first_row, std::int64_t rows) const {
    return load_(step, first_row, rows);
  }
  std::int64_t loss_terms(std::int64_t step, std::int64_t first_row, std::int64_t rows) const;
  void stage(std::int64_t step, std::int64_t first_row, std::int64_t rows) const {
    if (stage_) stage_(step, first_row, rows);
  }
  /// 0: data.batch_size.
  std::int64_t rows_of(std::int64_t step) const { return rows_of_ ? rows_of_(step) : 0; }

 private:
  Load load_;
  Count count_;
  Stage stage_;
  Rows rows_of_;
};

struct StepResult {
  /// Mean cross-entropy of the step's valid targets, before the update.
  float loss = 0.0f;
  /// Norm of the whole gradient, before clipping.
  double gradient_norm = 0.0;
  /// That of the section `optimizer`; listed groups may have others.
  double learning_rate = 0.0;
  /// Whether loss and norm are finite; if not, the parameters were not touched.
  bool finite = true;
  /// They are not, and no loss scale was too large.
  bool diverged = false;
  /// Whether a rank was asked to stop.
  bool stop = false;
  /// A mixture of experts has these two: the sum of the routers' balance and z-losses, and the loads
  /// of the whole step. A step that f16 skipped has no loads.
  std::optional<double> router_loss = {};
  ExpertLoads loads = {};
  /// The readings of every unit, in a watched step (train.watch).
  std::vector<UnitReadings> watch = {};
  /// With an objective of pairs.
  std::optional<PreferenceMeans> preference = {};
  /// In fp8: the tensors with numbers that were cut.
  Fp8Cut cut = {};
};

struct ValidationLoss {
  float loss = 0.0f;
  std::optional<PreferenceMeans> preference = {};
};

/// Every rank of `world`, which must outlive the session, makes one and makes the same calls.
class TrainingSession {
 public:
  /// The model with initial or loaded parameters. Raises Error if the configuration does not suit
  /// so many ranks.
  TrainingSession(const ResolvedConfig& run, Communicator& world);
  ~TrainingSession();

  using BatchSource = tessera::BatchSource;

  /// One update, `step` counted from 1, on accumulation_steps micro-batches per rank. Its time is
  /// in the profiler's spans data, forward, backward and optimizer. The result is that of the whole
  /// batch and the same on every rank. If the loss or the gradient is not finite, raises Error
  /// before the parameters are touched, unless train.on_nonfinite says otherwise. f16 skips the step
  /// first and lowers the loss scale, down to its least value. Raises Error if no target of the
  /// batch is valid, or if replicas differ (sharding.check_replicas). `stop`: this rank was asked to stop; all ranks learn it with the loss.
  StepResult step(std::int64_t step, const BatchSource& source, bool stop = false);

  /// Forward and backward of a step with the masters as they are: the losses, gradients and norm of
  /// step() on the same batch, without an update. `observer` sees this rank's operations. A collective.
  void observe(std::int64_t step, const BatchSource& source, OperationObserver& observer);

  /// Mean cross-entropy of the valid targets in rows [0, rows) of step 0 of `source`, without
  /// gradients; the same on every rank. The rows need not fill a batch.
  float evaluate(std::int64_t rows, const BatchSource& source) {
    return measure(rows, source).loss;
  }
  /// The same; and with an objective of pairs its loss and means.
  ValidationLoss measure(std::int64_t rows, const BatchSource& source);
  /// The same for the averages of train.ema, and the weights of frozen parameters. All weights stay; a copy
  /// takes memory meanwhile.
  float evaluate_ema(std::int64_t rows, const BatchSource& source);
  /// evaluate(), with the readings of every unit's activations.
  struct WatchedLoss {
    float loss = 0.0f;
    std::vector<UnitReadings> readings;
  };
  WatchedLoss evaluate_watched(std::int64_t rows, const BatchSource& source);
  /// The sum of log-probabilities of both answers of all pairs, in the order of `rows`, on every rank.
  std::vector<float> answer_log_probabilities(const RowSource& rows);
  /// The number of right answers to all questions, on every rank.
  std::int64_t right_answers(const std::vector<Question>& questions);
  /// Passes of the model outside of the calls above need it: in fp8 their factors have 8 bits as an evaluation's
  /// have. Null otherwise.
  std::unique_ptr<Fp8Scope> evaluation_scope();

  LanguageModel& model() { return *model_; }
  Strategy& strategy() { return *strategy_; }
  /// All of it, when the last update has ended.
  OptimizerGroups& optimizer() {
    strategy_->wait_for_last_update();
    return *optimizer_;
  }
  /// In f16 only.
  std::optional<LossScaler>& scaler() { return scaler_; }
  /// In fp8 only.
  std::optional<Fp8State>& fp8() { return fp8_; }
  /// Rows that a rank computes at a time, at most.
  std::int64_t rows_per_micro_batch() const {
    return rows_per_micro_batch(run_.config.data.batch_size);
  }
  /// runtime.graph: the nodes of the step's graph; 0 before the second step, and without.
  std::int64_t graph_nodes() const { return graphed_ ? graphed_->nodes() : 0; }

 private:
  /// Those that the configuration starts from.
  void load_weights();
  /// Raises Error if runtime.graph is set and the step cannot be a graph.
  void check_graph() const;
  /// Raises Error if no target of the step's batch is valid.
  StepNumbers numbers_of(std::int64_t step, const BatchSource& source) const;
  Batch load_micro_batch(std::int64_t step, std::int64_t i, const BatchSource& source) const;
  /// Loads this rank's first micro-batch of the step early.
  void stage_micro_batch(std::int64_t step, const BatchSource& source) const;
  /// The numbers that the losses are added to, and a place for this rank's wish to stop.
  StepInputs inputs_of(std::int64_t step, const BatchSource& source, bool stop) const;
  /// Queues the forward and backward passes of a step.
  void queue_passes(Step& sharded, const StepNumbers& numbers, const StepInputs& inputs);
  /// Queues the sums over all ranks behind them.
  struct Sums {
    GradientNorm norm;
    Tensor loss;  // [1] f32
  };
  Sums queue_sums(Step& sharded, const StepInputs& inputs);
  /// Queues the device's work of a step, with the update. Returns the norm. With runtime.graph the
  /// second step is the last that calls it, so a result of the host may not depend on the step here.
  GradientNorm queue_step(const StepNumbers& numbers, const StepInputs& inputs);
  /// Forward and backward of this rank's micro-batches. Adds their losses times the loss's factor, and the
  /// numbers behind them, to `losses`, f32: a row, or one of each micro-batch (Plan::losses).
  void accumulate_gradients(Step& sharded, const StepNumbers& numbers, const StepInputs& inputs,
                            const Tensor& losses);
  /// The tokens that this rank has of whole rows.
  Batch own_tokens(const Batch& rows) const;
  /// The shape of those of a micro-batch of so many rows.
  Shape own_tokens_shape(std::int64_t rows) const;
  /// The rows of a step's batch, and this rank's of a micro-batch of such a batch.
  std::int64_t batch_rows(std::int64_t step, const BatchSource& source) const;
  std::int64_t rows_per_micro_batch(std::int64_t batch_rows) const;
  /// Whether this rank speaks for all that compute the same rows of a batch.
  bool speaks_for_rows() const;
  /// The sum of a number [1] over the ranks that share out the tokens of rows.
  Tensor sum_over_context(const Tensor& own) const;
  /// In place.
  void reduce_over_ranks(const Tensors& values, std::string label,
                         Reduction reduction = Reduction::sum) const;
  /// Begins to watch the passes that follow, or ends: every unit's readings, or for QK-clip alone.
  void start_watch(bool watches, bool clips);
  /// Takes the largest activations of all ranks, if they are watched.
  void reduce_activations() const;
  /// Takes the largest magnitudes of all ranks, and makes the scales of the next step, in fp8 with a history.
  void end_fp8_step();
  /// Ends the routers' step with the counts of all ranks.
  void finish_routers() const;
  /// Clips and updates. If the norm or the loss is not finite, nothing changes.
  void update_parameters(Step& sharded, const StepNumbers& numbers, const GradientNorm& norm,
                         const Tensor& loss);

  /// The position of dropout's random numbers in this rank's micro-batch i.
  void enter_micro_batch(std::uint64_t step, std::int64_t i) const;
  /// Adds the loss of this rank's micro-batch i to its place in `losses`, if the rank counts.
  void add_loss(const Tensor& losses, std::int64_t i, const Tensor& loss) const;
  /// The numbers of micro-batch i among `losses`: its loss, and the numbers behind it.
  Tensor sums_of(const Tensor& losses, std::int64_t i) const;
  /// The objective of this rank's micro-batch i; none for next_token.
  RowObjective objective_of(const Tensor& losses, std::int64_t i, const Batch& batch,
                            double scale) const;
  /// The loss without gradients; undefined on ranks that have no head.
  Variable loss_of(const Batch& batch, double scale, const RowObjective& objective);
  /// The number of this rank's micro-batch i among all of the step.
  std::int64_t micro_batch(std::int64_t i) const { return i * batch_ranks_ + batch_rank_; }

  ResolvedConfig run_;
  Communicator& world_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Strategy> strategy_;
  std::int64_t batch_ranks_ = 1, batch_rank_ = 0;
  bool counts_in_loss_ = true, counts_choices_ = true;
  /// With several stages.
  std::unique_ptr<PipelinePasses> pipeline_;
  /// Shared with updates that are under way (runtime.overlap_update).
  std::shared_ptr<OptimizerGroups> optimizer_;
  std::optional<LossScaler> scaler_;
  std::optional<Fp8State> fp8_;
  /// With runtime.graph.
  std::optional<GraphedStep> graphed_;
  /// With optimizer.qk_clip.
  std::optional<QkClip> qk_clip_;
  /// During a watched step; with QK-clip during every step.
  std::optional<ActivationWatch> activations_;
  /// During a watched step.
  std::optional<StepWatch> watch_;
};

}  // namespace tessera
