#include "models/balance.h"

#include <algorithm>
#include <numeric>

#include "runtime/check.h"

namespace tessera {
namespace {

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// The sign of mean(counts) - count, by integers.
int side_of_mean(std::int64_t count, std::int64_t total, std::int64_t experts) {
  const std::int64_t difference = total - count * experts;
  return (difference > 0) - (difference < 0);
}

}  // namespace

std::vector<std::int64_t> expert_counts(const Tensor& offsets) {
  const auto ends = offsets.to_vector<std::int32_t>();
  std::vector<std::int64_t> counts;
  for (std::size_t e = 1; e < ends.size(); ++e) counts.push_back(ends[e] - ends[e - 1]);
  return counts;
}

void update_router_bias(std::span<float> bias, std::span<const std::int64_t> counts, double rate) {
  check(bias.size() == counts.size(),
        "update_router_bias: {} biases and {} counts; each expert has one of both", bias.size(),
        counts.size());
  const auto experts = static_cast<std::int64_t>(counts.size());
  const std::int64_t total = sum_of(counts);
  std::int64_t sides = 0;
  for (const std::int64_t count : counts) sides += side_of_mean(count, total, experts);
  for (std::size_t e = 0; e < bias.size(); ++e) {
    const double mean = static_cast<double>(sides) / static_cast<double>(experts);
    const double step = rate * (side_of_mean(counts[e], total, experts) - mean);
    bias[e] = static_cast<float>(bias[e] + step);
  }
}

std::vector<double> balance_factors(std::span<const std::int64_t> counts, double coefficient,
                                    std::int64_t counted_tokens, std::int64_t tokens) {
  check(counted_tokens >= 1 && tokens >= 1,
        "balance_factors: {} counted tokens and {} tokens; both must be at least 1", counted_tokens,
        tokens);
  std::vector<double> factors;
  for (const std::int64_t count : counts) {
    const double load = static_cast<double>(count) / static_cast<double>(counted_tokens);
    factors.push_back(coefficient * static_cast<double>(counts.size()) * load /
                      static_cast<double>(tokens));
  }
  return factors;
}

double load_imbalance(std::span<const std::int64_t> counts) {
  const std::int64_t total = sum_of(counts);
  if (total == 0) return 1.0;
  const std::int64_t largest = *std::max_element(counts.begin(), counts.end());
  return static_cast<double>(largest) * static_cast<double>(counts.size()) /
         static_cast<double>(total);
}

}  // namespace tessera
