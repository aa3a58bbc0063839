#include "models/language_model.h"

#include <algorithm>
#include <vector>

#include "kernels/cross_entropy/op.h"
#include "kernels/scale/op.h"

namespace tessera {
Tensor LanguageModel::next_logits(const Tensor& tokens, KeyValueCache& cache) {
  const NewTokens sequence{tokens, &cache};
  return next_logits(std::span(&sequence, 1)).reshape({shape().vocab_size});
}

Tensor log_probabilities_of(const Tensor& logits, const Tensor& targets) {
  const Tensor losses = Tensor::empty(targets.shape(), logits.dtype());
  const Tensor logsumexp = Tensor::empty(targets.shape(), logits.dtype());
  cross_entropy_forward(losses, logsumexp, logits, targets);
  scale(losses, losses, -1.0);
  return losses;
}

bool is_block(const LanguageModel& model, const Unit& unit) {
  const Units& units = model.units();
  const bool tied = units.front()->at_both_ends();
  return &unit != units.front().get() && (tied || &unit != units.back().get());
}

double head_flops(const LanguageModel& model) {
  const Units& units = model.units();
  const Unit& unit = units.front()->at_both_ends() ? *units.front() : *units.back();
  const TransformerShape& shape = model.shape();
  const std::vector<Parameter>& parameters = unit.parameters();
  const auto table = std::find_if(parameters.begin(), parameters.end(), [&](const auto& parameter) {
    return parameter.shape()[0] == shape.vocab_size;
  });
  return (table->trainable() ? 6.0 : 4.0) * static_cast<double>(shape.vocab_size * shape.width);
}

double training_flops(const LanguageModel& model, std::int64_t batch,
                      std::int64_t sequence_length) {
  const TransformerShape& shape = model.shape();
  const double share_of_experts =
      shape.experts.count == 0
          ? 0.0
          : static_cast<double>(shape.experts.per_token) / static_cast<double>(shape.experts.count);
  double per_token = 0.0;  // more than the shape's
  for (const auto& unit : model.units()) {
    for (const Parameter& parameter : unit->parameters()) {
      if (!is_block(model, *unit) || parameter.shape().rank() < 2) continue;
      const double taken =
          static_cast<double>(parameter.numel()) * (parameter.stacked() ? share_of_experts : 1.0);
      if (parameter.in_adapter()) per_token += 6.0 * taken;
      if (!parameter.trainable()) per_token -= 2.0 * taken;
    }
  }
  per_token += head_flops(model) - 6.0 * static_cast<double>(shape.vocab_size * shape.width);
  return training_flops(shape, batch, sequence_length) +
         per_token * static_cast<double>(batch * sequence_length);
}

std::int64_t valid_targets(const Tensor& targets) {
  const std::vector<std::int32_t> ids = targets.to_vector<std::int32_t>();
  return std::count_if(ids.begin(), ids.end(),
                       [](std::int32_t target) { return target != kIgnoreIndex; });
}

}  // namespace tessera
