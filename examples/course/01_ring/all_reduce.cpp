// An all-reduce around a ring: a reduce-scatter, and then an all-gather.
#include <vector>

#include "examples/course/01_ring/ring.h"

namespace tessera::course {
namespace {

/// Part p of the values; p may be negative.
std::span<float> part(const Ring& ring, std::span<float> values, int p) {
  const auto ranks = static_cast<std::size_t>(ring.ranks());
  const auto index = static_cast<std::size_t>((p % ring.ranks() + ring.ranks()) % ring.ranks());
  const std::size_t begin = index * values.size() / ranks;
  return values.subspan(begin, (index + 1) * values.size() / ranks - begin);
}

/// After it rank r has the sums of part r + 1.
void reduce_scatter(Ring& ring, std::span<float> values) {
  for (int round = 0; round + 1 < ring.ranks(); ++round) {
    const std::span<float> sums = part(ring, values, ring.rank() - round - 1);
    std::vector<float> arrived(sums.size());
    ring.exchange(part(ring, values, ring.rank() - round), arrived);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += arrived[i];
  }
}

/// Rank r begins with part r + 1.
void all_gather(Ring& ring, std::span<float> values) {
  for (int round = 0; round + 1 < ring.ranks(); ++round) {
    ring.exchange(part(ring, values, ring.rank() + 1 - round),
                  part(ring, values, ring.rank() - round));
  }
}

}  // namespace

void all_reduce(Ring& ring, std::span<float> values) {
  reduce_scatter(ring, values);
  all_gather(ring, values);
}

}  // namespace tessera::course
