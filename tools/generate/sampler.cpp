#include "tools/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/check.h"
#include "runtime/elementary.h"

namespace tessera {

void check_sampling(const SamplingOptions& options) {
  check(options.temperature >= 0.0 && std::isfinite(options.temperature),
        "temperature {} is not a number >= 0", options.temperature);
  check(options.top_k >= 0, "top-k {} is not a number >= 0", options.top_k);
  check(options.top_p > 0.0 && options.top_p <= 1.0, "top-p {} is not in (0, 1]", options.top_p);
}

std::int64_t sample(std::span<const float> logits, const SamplingOptions& options,
                    const RandomStream& random, std::uint64_t position) {
  check_sampling(options);
  check(!logits.empty(), "there are no logits to sample from");
  std::vector<std::int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0.0) return tokens.front();
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(tokens.size())) {
    tokens.resize(static_cast<std::size_t>(options.top_k));
  }

  std::vector<double> weights;
  for (const std::int64_t token : tokens) {
    weights.push_back(exponential((static_cast<double>(logits[token]) - logits[tokens.front()]) /
                                  options.temperature));
  }
  const double kept_mass = options.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double mass = 0.0;
  std::size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || mass < kept_mass)) mass += weights[kept++];

  double target = static_cast<double>(random.uniform(position)) * mass;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    if (target < weights[i]) return tokens[i];
    target -= weights[i];
  }
  return tokens[kept - 1];
}

}  // namespace tessera
