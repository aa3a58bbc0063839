// The sum over ranks in the order of a tree, which does not depend on who adds.
#include "examples/course/10_tree/tree_sum.h"

#include <bit>

namespace tessera::course {

std::vector<float> tree_sum(std::span<const std::vector<float>> ranks) {
  if (ranks.size() == 1) return ranks.front();
  const std::size_t first = std::bit_floor(ranks.size() - 1);
  std::vector<float> sum = tree_sum(ranks.first(first));
  const std::vector<float> right = tree_sum(ranks.subspan(first));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

}  // namespace tessera::course
