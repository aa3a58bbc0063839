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

std::int64_t valid_targets(const Tensor& targets) {
  const std::vector<std::int32_t> ids = targets.to_vector<std::int32_t>();
  return std::count_if(ids.begin(), ids.end(),
                       [](std::int32_t target) { return target != kIgnoreIndex; });
}

}  // namespace tessera
