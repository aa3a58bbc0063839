#include "tools/data/soft_targets.h"

#include <algorithm>

#include "kernels/cross_entropy/op.h"
#include "runtime/elementary.h"

namespace tessera {

void write_soft_target(const SoftTarget& target, std::int32_t next_token, double weight,
                       std::span<const TokenId> ids, std::span<const float16> log_probabilities) {
  std::fill(target.classes.begin(), target.classes.end(), kIgnoreIndex);
  std::fill(target.weights.begin(), target.weights.end(), 0.0f);
  if (next_token == kIgnoreIndex) return;
  const auto empty = std::ranges::find(log_probabilities, kNoProbability.bits, &float16::bits);
  const auto used = static_cast<std::size_t>(empty - log_probabilities.begin());
  const auto value = [&](std::size_t k) {
    return static_cast<double>(static_cast<float>(log_probabilities[k]));
  };
  // Relative to the first, which is the greatest.
  const auto probability = [&](std::size_t k) { return exponential(value(k) - value(0)); };
  double sum = 0.0;
  for (std::size_t k = 0; k < used; ++k) sum += probability(k);
  double of_next = used == 0 ? 1.0 : 1.0 - weight;
  for (std::size_t k = 0; k < used; ++k) {
    const double share = weight * (probability(k) / sum);
    const auto id = static_cast<std::int32_t>(ids[k]);
    if (id == next_token) {
      of_next += share;
    } else {
      target.classes[1 + k] = id;
      target.weights[1 + k] = static_cast<float>(share);
    }
  }
  target.classes[0] = next_token;
  target.weights[0] = static_cast<float>(of_next);
}

}  // namespace tessera
