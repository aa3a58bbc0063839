// The sum over ranks in the order of a tree.
#pragma once

#include <span>
#include <vector>

namespace tessera::course {

/// The sums of ranks' values, which have equal lengths. The sum of N ranks is that of the first p
/// plus that of the rest, with p the largest power of two below N, and so on down.
std::vector<float> tree_sum(std::span<const std::vector<float>> ranks);

}  // namespace tessera::course
