// Passes of a session without gradients.
#include <algorithm>
#include <map>

#include "autograd/engine.h"
#include "kernels/cast/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/eval/question.h"
#include "tools/train/gather.h"
#include "tools/train/session.h"

namespace tessera {

std::unique_ptr<Fp8Scope> TrainingSession::evaluation_scope() {
  return fp8_ ? std::make_unique<Fp8Scope>(*fp8_, Fp8Scope::Keeps::nothing) : nullptr;
}

Variable TrainingSession::loss_of(const Batch& batch, double scale, const RowObjective& objective) {
  const NoGradient no_gradient;
  const auto rounding = evaluation_scope();
  if (pipeline_ != nullptr) return pipeline_->loss(batch, scale, objective);
  return model_->loss(batch.inputs, batch.loss_targets(), scale, /*training=*/false,
                      batch.document_starts, objective);
}

ValidationLoss TrainingSession::measure(std::int64_t rows, const BatchSource& source) {
  const ContextAxisScope scope(strategy_->context_axis());
  const std::int64_t at_a_time = rows_per_micro_batch();
  const std::int64_t all_targets = source.loss_terms(0, 0, rows);
  check(all_targets > 0, "no target of the evaluation's {} rows is valid", rows);
  const bool compares = compares_pairs(run_.config.train.objective);
  std::vector<double> totals(static_cast<std::size_t>(strategy_->plan().loss_numbers), 0.0);
  // Every rank makes the same number of forward passes, since the passes are collectives.
  for (std::int64_t i = 0; i * batch_ranks_ * at_a_time < rows; ++i) {
    const std::int64_t first = micro_batch(i) * at_a_time;
    const std::int64_t count = std::clamp<std::int64_t>(rows - first, 0, at_a_time);
    const std::int64_t targets = count > 0 ? source.loss_terms(0, first, count) : 0;
    // A rank without rows computes row 0 and leaves it out of the sum.
    const Batch batch = own_tokens(count > 0 ? source.load(0, first, count) : source.load(0, 0, 1));
    const double scale = targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0;
    const Tensor behind = Tensor::zeros({kPreferenceSums - 1}, DType::f32);
    const RowObjective objective =
        compares ? preference_objective(preference_loss_of(run_.config), batch, scale, behind)
                 : RowObjective();
    const Variable loss = loss_of(batch, scale, objective);
    if (!loss.defined()) continue;  // an earlier stage of a pipeline
    const Tensor of_rows = sum_over_context(loss.data());
    if (targets == 0 || !speaks_for_rows()) continue;
    std::vector<float> numbers = behind.to_vector<float>();
    numbers.insert(numbers.begin(), of_rows.item<float>());
    for (std::size_t n = 0; n < totals.size(); ++n) {
      totals[n] += numbers[n] * static_cast<double>(targets);
    }
  }
  std::vector<float> shares;
  for (const double total : totals) {
    shares.push_back(static_cast<float>(total / static_cast<double>(all_targets)));
  }
  const Tensor means = Tensor::from(shares, {std::ssize(shares)});
  reduce_over_ranks({means}, "loss");
  const std::vector<float> results = means.to_vector<float>();
  world_.raise_if_aborted();
  ValidationLoss validation{.loss = results.front()};
  if (compares) validation.preference = preference_means(results.data() + 1);
  return validation;
}

std::vector<float> TrainingSession::answer_log_probabilities(const RowSource& rows) {
  const std::int64_t at_a_time = rows_per_micro_batch(), length = rows.sequence_length();
  const TokenLoader loader(rows);
  std::vector<float> all(static_cast<std::size_t>(2 * rows.document_rows().pairs()), 0.0f);
  for (std::int64_t i = 0; i * batch_ranks_ * at_a_time < rows.samples(); ++i) {
    const std::int64_t first = micro_batch(i) * at_a_time;
    const std::int64_t count = std::clamp<std::int64_t>(rows.samples() - first, 0, at_a_time);
    // A rank without rows computes row 0 and leaves it out.
    const Batch batch =
        loader.load(0, count > 0 ? first : 0, std::max<std::int64_t>(count, 1), rows.samples());
    const Tensor sequences = Tensor::zeros(batch.targets.shape(), DType::f32);
    const Variable loss = loss_of(
        batch, 1.0,
        preference_objective(preference_loss_of(run_.config), batch, 1.0, Tensor(), sequences));
    if (!loss.defined() || !speaks_for_rows()) continue;
    const auto sums = sequences.to_vector<float>();
    const auto starts = batch.document_starts.to_vector<std::int32_t>();
    for (std::int64_t row = 0; row < count; ++row) {
      auto answer = static_cast<std::size_t>(2 * rows.document_rows().first_pair(first + row));
      const auto answers = 2 * rows.document_rows().row(first + row).size();
      const std::size_t end = answer + answers;
      for (std::int64_t t = 0; t < length && answer < end; ++t) {
        const auto at = static_cast<std::size_t>(row * length + t);
        if (starts[at] == t) all[answer++] = sums[at];
      }
    }
  }
  const Tensor sums = Tensor::from(all, {std::ssize(all)});
  reduce_over_ranks({sums}, "reference");
  const std::vector<float> result = sums.to_vector<float>();
  world_.raise_if_aborted();
  return result;
}

TrainingSession::WatchedLoss TrainingSession::evaluate_watched(std::int64_t rows,
                                                               const BatchSource& source) {
  start_watch(/*watches=*/true, /*clips=*/false);
  WatchedLoss result;
  {
    const ActivationWatchScope scope(*activations_);
    result.loss = evaluate(rows, source);
  }
  reduce_activations();
  reduce_over_ranks(watch_->sums(), "watch");
  watch_->copy_to_host();
  current_stream().synchronize();
  world_.raise_if_aborted();
  result.readings = watch_->readings(/*loss_scale=*/1.0);
  start_watch(/*watches=*/false, /*clips=*/false);
  return result;
}

float TrainingSession::evaluate_ema(std::int64_t rows, const BatchSource& source) {
  std::map<std::string, Tensor> averages;
  for (const auto& [name, tensor] : optimizer_->averages()) averages.emplace(name, tensor);
  check(!averages.empty() || run_.config.train.ema > 0.0, "train.ema is 0: there is no average");
  const auto write = [](const Tensor& to, const Tensor& from) {
    to.dtype() == from.dtype() ? to.copy_from(from) : cast(to, from);
  };
  std::vector<std::pair<Tensor, Tensor>> kept;  // masters, and their values
  current_stream().synchronize();               // the host writes to offloaded masters
  strategy_->write_masters([&] {
    for (const Shard& shard : strategy_->shards()) {
      const auto average = averages.find(shard.parameter.name());
      if (average == averages.end() || shard.data.numel() == 0) continue;
      const Shape& shape = shard.data.shape();
      const DType dtype = shard.data.dtype();
      const bool on_host = shard.data.device() == Device{};
      kept.emplace_back(
          shard.data, on_host ? Tensor::empty_on_host(shape, dtype) : Tensor::empty(shape, dtype));
      write(kept.back().second, shard.data);
      write(shard.data, average->second);
    }
  });
  const float loss = evaluate(rows, source);
  current_stream().synchronize();
  strategy_->write_masters([&] {
    for (const auto& [master, values] : kept) write(master, values);
  });
  return loss;
}

std::int64_t TrainingSession::right_answers(const std::vector<Question>& questions) {
  const auto rounding = evaluation_scope();
  const std::int64_t right = tessera::right_answers(
      *model_, questions, static_cast<int>(batch_rank_), static_cast<int>(batch_ranks_));
  std::int64_t sum = 0;
  for (const auto& of_rank : gather_numbers({speaks_for_rows() ? right : 0}, world_)) {
    sum += of_rank.front();
  }
  return sum;
}

}  // namespace tessera
