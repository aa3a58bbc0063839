#include "sharding/plan/expert_traffic.h"

namespace tessera {

std::int64_t ExpertTraffic::bytes_of_sums() const {
  return parts > 0 ? 4 * parts : static_cast<std::int64_t>(size_of(dtype));
}

std::int64_t ExpertTraffic::forward(const TravellingRows& rows) const {
  if (ranks == 1) return 0;
  // Weights of rows travel next to them where they are needed at the experts.
  const std::int64_t numbers = channels + (weighed == WeighedInput::down ? 1 : 0);
  const std::int64_t offsets = 4 * (ranks - 1) * (experts / ranks + 1);
  return offsets + static_cast<std::int64_t>(size_of(dtype)) * numbers * rows.sent +
         bytes_of_sums() * channels * rows.received;
}

std::int64_t ExpertTraffic::backward(const TravellingRows& rows) const {
  if (ranks == 1) return 0;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  // The gradients of rows' weights are added up over the parts first.
  const std::int64_t of_weights = weighed == WeighedInput::down ? (parts > 0 ? 4 : size) : 0;
  return size * channels * rows.sent + (bytes_of_sums() * channels + of_weights) * rows.received;
}

TravellingRows balanced_rows(std::int64_t rows, std::int64_t ranks) {
  const std::int64_t others = rows * (ranks - 1) / ranks;
  return {.sent = others, .received = others};
}

}  // namespace tessera
