#include "tools/train/session.h"

#include <algorithm>
#include <cmath>

#include "autograd/checkpointing.h"
#include "autograd/engine.h"
#include "kernels/add/op.h"
#include "kernels/gradient_norm/op.h"
#include "kernels/observer.h"
#include "kernels/tree_reduce/op.h"
#include "models/adapters.h"
#include "models/hugging_face.h"
#include "models/peft.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/host_copy.h"
#include "sharding/comm/stream.h"
#include "tools/train/optimizer.h"
#include "tools/train/replica_check.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {

std::int64_t BatchSource::loss_terms(std::int64_t step, std::int64_t first_row,
                                     std::int64_t rows) const {
  if (count_) return count_(step, first_row, rows);
  return tessera::valid_targets(load_(step, first_row, rows).targets);
}

namespace {

/// Turns the first of the values, or rows of values, into their sum, in a binary tree, and returns it.
Tensor sum_in_tree(const Tensor& values) {
  const Tensor first = values.slice(0, 1);
  if (values.size(0) == 1) return first;
  Tensors parts;
  for (std::int64_t i = 0; i < values.size(0); ++i) parts.push_back(values.slice(i, i + 1));
  tree_reduce(first, parts, Reduction::sum);
  return first;
}

/// A row of numbers for each loss. The number behind all of them is the wish to stop.
Tensor losses_of(const StepInputs& inputs, std::int64_t losses) {
  const std::int64_t count = inputs.sums.numel() - 1;
  return inputs.sums.slice(0, count).reshape({losses, count / losses});
}

}  // namespace

TrainingSession::TrainingSession(const ResolvedConfig& run, Communicator& world)
    : run_(on_ranks(run, world.size())), world_(world), model_(make_model(run)) {
  check_ranks(run, world.size());
  const Config& config = run_.config;
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  if (config.runtime.compute_dtype.fp8) {
    fp8_.emplace(adaptable_weights(*model_), Fp8Options{.gradients = config.runtime.fp8_gradients,
                                                        .scales = config.runtime.fp8_scales,
                                                        .history = config.runtime.fp8_history});
  }
  strategy_ = make_strategy(model_->units(), run_.sharding, seed, &world);
  if (fp8_) strategy_->at_every_write([this] { fp8_->forget_largest(); });
  batch_ranks_ = strategy_->plan().batch_ranks();
  batch_rank_ = strategy_->plan().batch_rank(world.rank());
  counts_in_loss_ = strategy_->plan().counts_in_loss(world.rank());
  counts_choices_ = strategy_->plan().counts_choices(world.rank());
  if (strategy_->plan().pipeline.has_several()) {
    pipeline_ = std::make_unique<PipelinePasses>(*model_, *strategy_, world_);
  }
  // A dry run has no memory to load into.
  if (!context().is_dry()) load_weights();
  set_checkpointing(model_->units(), config.sharding.activation_checkpointing);
  if (computes_in(run_.sharding, DType::f16)) scaler_.emplace();
  const auto exchange = [&](const std::function<bool(const Parameter&)>& includes) {
    return strategy_->make_matrix_exchange(includes);
  };
  optimizer_ = std::make_shared<OptimizerGroups>(
      make_optimizers(config, *model_, strategy_->shards(), exchange), config.train.ema);
  if (config.optimizer.qk_clip > 0.0) {
    qk_clip_.emplace(*model_, strategy_->shards(), config.optimizer.qk_clip);
  }
  if (!config.runtime.graph) return;
  check_graph();
  graphed_.emplace(config.data.accumulation_steps);
}

TrainingSession::~TrainingSession() = default;

void TrainingSession::load_weights() {
  const std::filesystem::path &model = run_.config.model.init_from,
                              &adapter = run_.config.adapter.path;
  if (model.empty() && adapter.empty()) return;
  strategy_->write_masters([&] {
    if (!model.empty()) load_parameters(model, *strategy_);
    if (!adapter.empty()) load_adapter(adapter_folder(adapter), strategy_->shards());
  });
}

void TrainingSession::check_graph() const {
  const Config& config = run_.config;
  const auto refuse_if = [](bool condition, std::string_view reason) {
    check(!condition, "runtime.graph: {}", reason);
  };
  refuse_if(context().device() == Device{},
            "a CUDA graph needs a GPU; set runtime.graph=false on the CPU");
  refuse_if(
      world_.size() > 1 && config.sharding.communicator != CommunicatorKind::nccl,
      "ranks that exchange data by the host cannot be in a graph; set sharding.communicator=nccl");
  refuse_if(pipeline_ != nullptr,
            "the passes of a pipeline are not in a graph; set sharding.pipeline_parallel=1");
  refuse_if(config.sharding.offload != Offload::none,
            "offloaded state is updated by the host; set sharding.offload=none");
  refuse_if(config.sharding.expert_parallel > 1,
            "the host reads the sizes of the experts' messages; set sharding.expert_parallel=1");
  refuse_if(config.sharding.check_replicas > 0,
            "the host compares the replicas within a step; set sharding.check_replicas=0");
  refuse_if(config.train.watch > 0,
            "the host prepares the readings of watched steps; set train.watch=0");
  refuse_if(!config.train.batch_ramp.empty(),
            "the steps of a graph have equally many rows; leave train.batch_ramp out");
  refuse_if(config.train.profile.last > 0,
            "a graph has no spans to profile; leave train.profile out");
  refuse_if(run_.sharding.matrix_dtype != nullptr,
            "the exchange of muon's matrices is not in a graph yet; set optimizer.name=adamw");
  refuse_if(masks_documents(run_),
            "the host reads where documents start; set data.rows=windows and leave "
            "data.document_token out");
  const Routers* const routers = model_->routers();
  if (routers == nullptr) return;
  const RouterTraining& training = routers->training();
  refuse_if(training.balance == Balance::lagged || training.balance == Balance::hf,
            "the host computes this balance's factors; set moe.balance to bias or none");
  refuse_if(training.z_loss != 0.0 && scaler_.has_value(),
            "the host scales the z-loss in f16; set moe.z_loss=0 or take bf16");
}

StepNumbers TrainingSession::numbers_of(std::int64_t step, const BatchSource& source) const {
  const double scale = scaler_ ? scaler_->scale() : 1.0;
  const std::int64_t targets = source.loss_terms(step, 0, batch_rows(step, source));
  check(targets > 0, "step {}: no target of the batch is valid", step);
  return {.step = static_cast<std::uint64_t>(step),
          .update = optimizer_->steps() + 1,
          .learning_rates = optimizer_->learning_rates(step - 1),
          .loss_factor = scale / static_cast<double>(targets),
          .loss_scale = scale};
}

StepInputs TrainingSession::inputs_of(std::int64_t step, const BatchSource& source,
                                      bool stop) const {
  const std::int64_t numbers = strategy_->plan().losses() * strategy_->plan().loss_numbers;
  std::vector<float> start(static_cast<std::size_t>(numbers) + 1, 0.0f);
  start.back() = stop ? 1.0f : 0.0f;
  return {
      .sums = Tensor::from(start, {static_cast<std::int64_t>(start.size())}),
      .batch = [this, step, &source](std::int64_t i) { return load_micro_batch(step, i, source); },
      .rows = batch_rows(step, source)};
}

void TrainingSession::observe(std::int64_t step, const BatchSource& source,
                              OperationObserver& observer) {
  const ObserverScope scope(observer);
  const StepNumbers numbers = numbers_of(step, source);
  const StepInputs inputs = inputs_of(step, source, /*stop=*/false);
  Step sharded = strategy_->start_step();
  queue_passes(sharded, numbers, inputs);
  const Span span("optimizer");
  queue_sums(sharded, inputs);
  sharded.update([] {}, Writes::masters_and_copies);
  current_stream().synchronize();
  world_.raise_if_aborted();
}

StepResult TrainingSession::step(std::int64_t step, const BatchSource& source, bool stop) {
  const StepNumbers numbers = numbers_of(step, source);
  StepInputs inputs = inputs_of(step, source, stop);
  const std::int64_t every = run_.config.train.watch;
  start_watch(/*watches=*/every > 0 && step % every == 0, /*clips=*/qk_clip_.has_value());
  GradientNorm norm;
  if (graphed_) {
    norm = graphed_->run(numbers, inputs, [this, &numbers](const StepInputs& places) {
      return queue_step(numbers, places);
    });
    inputs.sums = graphed_->sums();
  } else {
    norm = queue_step(numbers, inputs);
  }

  // Everything is queued. The host loads rows of the next step while the device works, and then waits
  // for all results at once.
  stage_micro_batch(step + 1, source);
  const Routers* const routers = model_->routers();
  const HostCopy<float> sums(inputs.sums);
  const HostCopy<std::int64_t> words(norm.words());
  std::optional<HostCopy<float>> router_losses;
  if (routers != nullptr) router_losses.emplace(routers->router_losses());
  std::optional<HostCopy<float>> excess;
  if (fp8_) excess.emplace(fp8_->excess());
  if (watch_) watch_->copy_to_host();
  current_stream().synchronize();
  const std::vector<float> of_all_ranks = sums.values();
  const std::vector<std::int64_t> norm_words = words.values();
  const double scale = numbers.loss_scale;
  StepResult result = {
      .loss = static_cast<float>(of_all_ranks[0] / scale),
      .gradient_norm = GradientNorm::of_words(std::span(norm_words).first<kNormWords>()) / scale,
      .learning_rate =
          learning_rate_at(schedule_of(run_.config.optimizer, run_.config.train.steps), step - 1),
      .stop = of_all_ranks.back() > 0.0f};
  if (watch_) result.watch = watch_->readings(scale);
  if (fp8_) result.cut = fp8_->cut_of(excess->values());
  start_watch(/*watches=*/false, /*clips=*/false);
  if (compares_pairs(run_.config.train.objective)) {
    result.preference = preference_means(of_all_ranks.data() + 1, scale);
  }
  world_.raise_if_aborted();
  const bool finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  result.finite = finite;
  result.diverged = !finite && !(scaler_ && scale > LossScaler::kLeast);
  const bool must_stop = result.diverged && run_.config.train.on_nonfinite == OnNonfinite::stop;
  if (!finite) optimizer_->step_was_skipped();
  check(!must_stop,
        "step {}: the loss is {} and the gradient norm {}; the run stops before the parameters are "
        "touched. Lower optimizer.learning_rate, lengthen optimizer.warmup_steps or check the data",
        step, result.loss, result.gradient_norm);
  if (scaler_) scaler_->update(finite);
  if (routers != nullptr) {
    result.router_loss = router_losses->values()[0];
    if (finite) finish_routers();
    if (finite) result.loads = routers->loads();
  }
  return result;
}

GradientNorm TrainingSession::queue_step(const StepNumbers& numbers, const StepInputs& inputs) {
  Step sharded = strategy_->start_step();
  queue_passes(sharded, numbers, inputs);
  const Span span("optimizer");
  const Sums sums = queue_sums(sharded, inputs);
  const std::int64_t every = run_.config.sharding.check_replicas;
  const auto step = static_cast<std::int64_t>(numbers.step);
  if (every > 0 && step % every == 0 && !context().is_dry()) {
    check_replicas(*strategy_, world_, step);
  }
  reduce_activations();
  end_fp8_step();
  update_parameters(sharded, numbers, sums.norm, sums.loss);
  if (watch_) reduce_over_ranks(watch_->sums(), "watch");
  return sums.norm;
}

void TrainingSession::start_watch(bool watches, bool clips) {
  watch_.reset();
  activations_.reset();
  if (watches || clips) activations_.emplace(model_->units(), model_->shape().heads);
  if (watches) watch_.emplace(*strategy_, model_->units(), *activations_);
}

void TrainingSession::queue_passes(Step& sharded, const StepNumbers& numbers,
                                   const StepInputs& inputs) {
  Routers* const routers = model_->routers();
  if (routers != nullptr) {
    const DataConfig& data = run_.config.data;
    routers->start_step({.tokens = inputs.rows * data.sequence_length,
                         .micro_batches = data.accumulation_steps * batch_ranks_,
                         .losses = strategy_->plan().losses(),
                         .loss_scale = numbers.loss_scale,
                         .in_stages = pipeline_ != nullptr});
  }
  {
    std::optional<ActivationWatchScope> scope;
    if (activations_) scope.emplace(*activations_);
    std::optional<Fp8Scope> rounding;
    if (fp8_) rounding.emplace(*fp8_);
    accumulate_gradients(sharded, numbers, inputs, losses_of(inputs, strategy_->plan().losses()));
  }
  if (routers != nullptr && !counts_choices_) routers->router_losses().zero();
}

TrainingSession::Sums TrainingSession::queue_sums(Step& sharded, const StepInputs& inputs) {
  Routers* const routers = model_->routers();
  const Tensor& sums = inputs.sums;
  reduce_over_ranks(routers == nullptr ? Tensors{sums} : Tensors{sums, routers->router_losses()},
                    "loss");
  const Tensor numbers = sum_in_tree(losses_of(inputs, strategy_->plan().losses()));
  const Tensor loss = numbers.reshape({numbers.numel()}).slice(0, 1);
  if (routers != nullptr) sum_in_tree(routers->router_losses());
  return {.norm = sharded.gradient_norm(), .loss = loss};
}

void TrainingSession::finish_routers() const {
  Routers& routers = *model_->routers();
  std::vector<std::int64_t> own = routers.counts();
  if (!counts_choices_) std::fill(own.begin(), own.end(), 0);
  const Tensor counts = Tensor::from(own, {static_cast<std::int64_t>(own.size())});
  reduce_over_ranks({counts}, "expert counts");
  const auto all = counts.to_vector<std::int64_t>();
  world_.raise_if_aborted();
  routers.finish_step(all);
}

void TrainingSession::update_parameters(Step& sharded, const StepNumbers& numbers,
                                        const GradientNorm& norm, const Tensor& loss) {
  const Tensor factor = Tensor::empty({1}, DType::f32);
  clip_factor(factor, norm, loss,
              {.max_norm = run_.config.optimizer.clip_norm, .loss_scale = numbers.loss_scale});
  if (run_.config.runtime.overlap_update && !watch_) {
    optimizer_->start_step(numbers.learning_rates, factor);
    sharded.update_by_unit([optimizer = optimizer_](int unit) { optimizer->update_unit(unit); });
    return;
  }
  const auto write = [&] {
    if (watch_) watch_->before_update();
    optimizer_->step(numbers.learning_rates, factor, [&] {
      if (!qk_clip_) return;
      qk_clip_->apply(activations_->largest(), factor);
      if (fp8_) fp8_->forget_largest();
    });
    if (watch_) watch_->after_update();
  };
  // The copies of clipped weights are written again.
  sharded.update(write, qk_clip_ ? Writes::masters : Writes::masters_and_copies);
}

void TrainingSession::reduce_activations() const {
  if (!activations_) return;
  reduce_over_ranks({activations_->largest()}, "watch", Reduction::maximum);
}

void TrainingSession::end_fp8_step() {
  if (!fp8_ || !fp8_->has_history()) return;
  reduce_over_ranks({fp8_->largest()}, "fp8", Reduction::maximum);
  fp8_->end_step();
}

Batch TrainingSession::load_micro_batch(std::int64_t step, std::int64_t i,
                                        const BatchSource& source) const {
  const Span span("data");
  const std::int64_t rows = rows_per_micro_batch(batch_rows(step, source));
  return own_tokens(source.load(step, micro_batch(i) * rows, rows));
}

void TrainingSession::stage_micro_batch(std::int64_t step, const BatchSource& source) const {
  const Span span("data");
  const std::int64_t rows = rows_per_micro_batch(batch_rows(step, source));
  source.stage(step, micro_batch(0) * rows, rows);
}

void TrainingSession::enter_micro_batch(std::uint64_t step, std::int64_t i) const {
  context().random() = {.seed = static_cast<std::uint64_t>(run_.config.train.seed),
                        .step = step,
                        .micro_batch = static_cast<std::uint64_t>(micro_batch(i))};
}

void TrainingSession::add_loss(const Tensor& losses, std::int64_t i, const Tensor& loss) const {
  const Tensor sum = sums_of(losses, i).slice(0, 1);
  if (counts_in_loss_) add(sum, sum, loss);
}

Tensor TrainingSession::sums_of(const Tensor& losses, std::int64_t i) const {
  const std::int64_t row = i % losses.size(0);
  return losses.slice(row, row + 1).reshape({losses.size(1)});
}

RowObjective TrainingSession::objective_of(const Tensor& losses, std::int64_t i, const Batch& batch,
                                           double scale) const {
  if (!compares_pairs(run_.config.train.objective)) return {};
  const Tensor numbers = sums_of(losses, i);
  return preference_objective(preference_loss_of(run_.config), batch, scale,
                              counts_in_loss_ ? numbers.slice(1, numbers.numel()) : Tensor());
}

Batch TrainingSession::own_tokens(const Batch& rows) const {
  if (strategy_->context_axis() == nullptr) return rows;
  const TokenCut& cut = strategy_->context_axis()->cut();
  const auto own = [&](const Tensor& of_rows) {
    return of_rows.defined() ? cut_rows(of_rows, cut) : Tensor();
  };
  return {.inputs = own(rows.inputs),
          .targets = own(rows.targets),
          .document_starts = own(rows.document_starts),
          .soft = {own(rows.soft.classes), own(rows.soft.weights)}};
}

Shape TrainingSession::own_tokens_shape(std::int64_t rows) const {
  const std::int64_t length = run_.config.data.sequence_length;
  if (strategy_->context_axis() == nullptr) return {rows, length};
  const TokenCut& cut = strategy_->context_axis()->cut();
  return {cut.pieces() * rows, length / cut.pieces_of_row()};
}

void TrainingSession::accumulate_gradients(Step& sharded, const StepNumbers& numbers,
                                           const StepInputs& inputs, const Tensor& losses) {
  const ContextAxisScope scope(strategy_->context_axis());
  if (pipeline_ != nullptr) {
    pipeline_->train(sharded, {.batch = inputs.batch,
                               .enter = [&](std::int64_t i) { enter_micro_batch(numbers.step, i); },
                               .add_loss = [&](std::int64_t i,
                                               const Tensor& loss) { add_loss(losses, i, loss); },
                               .objective =
                                   [&](std::int64_t i, const Batch& batch) {
                                     return objective_of(losses, i, batch, numbers.loss_factor);
                                   },
                               .loss_scale = numbers.loss_factor,
                               .tokens = own_tokens_shape(rows_per_micro_batch(inputs.rows))});
    return;
  }
  for (std::int64_t i = 0; i < run_.config.data.accumulation_steps; ++i) {
    enter_micro_batch(numbers.step, i);
    const Batch batch = inputs.batch(i);
    Variable loss;
    {
      const Span span("forward");
      loss =
          model_->loss(batch.inputs, batch.loss_targets(), numbers.loss_factor, /*training=*/true,
                       batch.document_starts, objective_of(losses, i, batch, numbers.loss_factor));
      add_loss(losses, i, loss.data());
    }
    const Span span("backward");
    backward(loss);
    sharded.finish_micro_batch();
  }
}

bool TrainingSession::speaks_for_rows() const {
  return counts_in_loss_ && strategy_->plan().token_cut(world_.rank()).rank == 0;
}

Tensor TrainingSession::sum_over_context(const Tensor& own) const {
  const TokenCut cut = strategy_->plan().token_cut(world_.rank());
  if (cut.ranks == 1) return own;
  const Tensor all = Tensor::empty({cut.ranks}, own.dtype());
  all.slice(cut.rank, cut.rank + 1).copy_from(own);
  wait_for_communication(strategy_->context_axis()->start_gather({all}));
  return sum_in_tree(all);
}

void TrainingSession::reduce_over_ranks(const Tensors& values, std::string label,
                                        Reduction reduction) const {
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  wait_for_communication(world_.all_reduce(values, stream, std::move(label), reduction));
}

std::int64_t TrainingSession::batch_rows(std::int64_t step, const BatchSource& source) const {
  const std::int64_t rows = source.rows_of(step);
  return rows > 0 ? rows : run_.config.data.batch_size;
}

std::int64_t TrainingSession::rows_per_micro_batch(std::int64_t batch_rows) const {
  return batch_rows / (run_.config.data.accumulation_steps * batch_ranks_);
}

}  // namespace tessera
