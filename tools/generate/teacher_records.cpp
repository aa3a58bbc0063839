#include "tools/generate/teacher_records.h"

#include <algorithm>
#include <cmath>

#include "models/language_model.h"
#include "runtime/check.h"
#include "runtime/threads.h"
#include "tools/generate/token_scores.h"

namespace tessera {
namespace {

/// A row of logits, its largest one, and the log-probability of that.
struct Row {
  std::span<const float> logits;
  float largest, of_largest;

  /// The terms of log_probabilities_of, in their order.
  float log_probability(std::size_t id) const { return -((largest - logits[id]) - of_largest); }
};

/// The ids of each row's `top_k` largest logits [N, top_k].
std::vector<TokenId> likeliest_ids_of_rows(const Tensor& logits, std::int64_t top_k) {
  const std::int64_t width = logits.size(1);
  std::vector<TokenId> ids(static_cast<std::size_t>(logits.size(0) * top_k));
  parallel_for(logits.size(0), /*chunk=*/1, [&](std::int64_t row, std::int64_t) {
    const std::span own(logits.data<float>() + row * width, static_cast<std::size_t>(width));
    std::ranges::copy(likeliest_ids(own, top_k), ids.begin() + row * top_k);
  });
  return ids;
}

}  // namespace

RecordsOfRows teacher_records(const Tensor& logits, std::span<const std::int32_t> next_tokens,
                              std::int64_t top_k) {
  const Tensor on_host = logits.to_host();
  const auto places = static_cast<std::size_t>(top_k);
  const auto width = static_cast<std::size_t>(logits.size(1));
  RecordsOfRows records = {.ids = likeliest_ids_of_rows(on_host, top_k)};
  records.log_probabilities.resize(records.ids.size(), kNoProbability);
  std::vector<std::int32_t> likeliest;
  for (std::size_t n = 0; n < next_tokens.size(); ++n) {
    likeliest.push_back(static_cast<std::int32_t>(records.ids[n * places]));
  }
  const Tensor of_likeliest =
      log_probabilities_of(logits, Tensor::from(likeliest, {logits.size(0)})).to_host();
  for (std::size_t n = 0; n < next_tokens.size(); ++n) {
    const std::span<const float> own(on_host.data<float>() + n * width, width);
    const Row row = {own, own[static_cast<std::size_t>(likeliest[n])],
                     of_likeliest.data<float>()[n]};
    check(std::isfinite(row.of_largest),
          "a token's log-probability is {}: the model diverged or is damaged", row.of_largest);
    const bool has_next = next_tokens[n] != kIgnoreIndex;
    if (has_next) {
      records.loss -= row.log_probability(static_cast<std::size_t>(next_tokens[n]));
      ++records.next_tokens;
    }
    for (std::size_t i = n * places; i < (n + 1) * places; ++i) {
      float16& value = records.log_probabilities[i];
      if (has_next) value = float16(std::min(0.0f, row.log_probability(records.ids[i])));
      if (value.bits == kNoProbability.bits) records.ids[i] = 0;
    }
  }
  return records;
}

}  // namespace tessera
