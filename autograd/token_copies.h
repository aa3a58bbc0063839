// TokenCopies: the copies of tokens that travel with ExpertCopies::each_rank.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// One copy of a token for each rank that has any of its experts, sorted by (rank, token).
struct TokenCopies {
  /// The copies for each rank.
  std::vector<std::int64_t> counts = {};
  /// The token of each copy.
  std::vector<std::int32_t> tokens = {};
  /// For each dispatched row, in the order of (expert, token): the number of its token's copy among those for
  /// the rank of its expert.
  std::vector<std::int32_t> of_rows = {};
};

/// The copies for `places` [N, k] of N tokens' slots (kernels/dispatch/op.h), by slots in ascending order of
/// experts. `ends` [R]: the end of each rank's dispatched rows.
TokenCopies copies_of(const std::vector<std::int32_t>& places, std::int64_t per_token,
                      const std::vector<std::int64_t>& ends);

/// Copies for a rank with `n` of `experts` experts if each of `tokens` tokens takes any `per_token` of them.
std::int64_t expected_copies(std::int64_t tokens, std::int64_t per_token, std::int64_t experts,
                             std::int64_t n);

}  // namespace tessera
