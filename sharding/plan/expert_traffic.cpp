#include "sharding/plan/expert_traffic.h"

#include "autograd/token_copies.h"

namespace tessera {

std::int64_t ExpertTraffic::bytes_of_sums() const {
  return parts > 0 ? 4 * parts : static_cast<std::int64_t>(size_of(dtype));
}

std::int64_t ExpertTraffic::forward(const TravellingRows& rows) const {
  if (ranks == 1) return 0;
  const bool once = copies == ExpertCopies::each_rank;
  const bool weighed_there = weighed == WeighedInput::down;
  // With copies: their number, and the copy that each row is of.
  const std::int64_t offsets = (ranks - 1) * pieces * (experts / ranks + (once ? 2 : 1));
  const std::int64_t integers = offsets + (once ? rows.sent : 0);
  // Weights of rows travel next to them where they are needed at the experts.
  const std::int64_t there = channels * (once && weighed_there ? rows.copies : rows.sent) +
                             (weighed_there ? rows.sent : 0);
  return 4 * integers + static_cast<std::int64_t>(size_of(dtype)) * there +
         bytes_of_sums() * channels * rows.received;
}

std::int64_t ExpertTraffic::backward(const TravellingRows& rows) const {
  if (ranks == 1) return 0;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t there =
      channels * (copies == ExpertCopies::each_rank ? rows.copies : rows.sent);
  // The gradients of rows' weights are added up over the parts first.
  const std::int64_t of_weights = weighed == WeighedInput::down ? (parts > 0 ? 4 : size) : 0;
  return size * there + (bytes_of_sums() * channels + of_weights) * rows.received;
}

TravellingRows balanced_rows(const ExpertTraffic& traffic, std::int64_t tokens,
                             std::int64_t per_token) {
  const std::int64_t ranks = traffic.ranks, experts = traffic.experts;
  const std::int64_t others = tokens * per_token * (ranks - 1) / ranks;
  return {.sent = others,
          .received = others,
          .copies = (ranks - 1) * expected_copies(tokens, per_token, experts, experts / ranks)};
}

}  // namespace tessera
