#include "autograd/token_copies.h"

#include <algorithm>
#include <cmath>

namespace tessera {

TokenCopies copies_of(const std::vector<std::int32_t>& places, std::int64_t per_token,
                      const std::vector<std::int64_t>& ends) {
  std::vector<std::vector<std::int32_t>> of_ranks(ends.size());
  TokenCopies copies;
  copies.of_rows.resize(places.size());
  for (std::int64_t slot = 0; slot < std::ssize(places); ++slot) {
    const std::int32_t row = places[slot], token = static_cast<std::int32_t>(slot / per_token);
    const auto rank = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
    std::vector<std::int32_t>& of_rank = of_ranks[rank];
    if (of_rank.empty() || of_rank.back() != token) of_rank.push_back(token);
    copies.of_rows[row] = static_cast<std::int32_t>(of_rank.size()) - 1;
  }
  for (const std::vector<std::int32_t>& of_rank : of_ranks) {
    copies.counts.push_back(std::ssize(of_rank));
    copies.tokens.insert(copies.tokens.end(), of_rank.begin(), of_rank.end());
  }
  return copies;
}

std::int64_t expected_copies(std::int64_t tokens, std::int64_t per_token, std::int64_t experts,
                             std::int64_t n) {
  double none_here = 1.0;
  for (std::int64_t taken = 0; taken < per_token; ++taken) {
    none_here *= static_cast<double>(std::max<std::int64_t>(0, experts - n - taken)) /
                 static_cast<double>(experts - taken);
  }
  return std::llround(static_cast<double>(tokens) * (1.0 - none_here));
}

}  // namespace tessera
