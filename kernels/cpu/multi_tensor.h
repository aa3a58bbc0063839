// One parallel loop over the elements of many tensors, such as a bucket's parameters.
//
// The loop runs as if the tensors lay end to end, in chunks of equal size. So many small tensors
// cost no more than a large one, and the threads share a large one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "runtime/tensor.h"

namespace tessera::cpu {

/// Calls body(i, begin, end) for ranges that together cover elements [0, counts[i]) of every tensor
/// i once. The cuts depend on the counts and on `chunk` alone.
template <typename Body>
void for_each_chunk(std::span<const std::int64_t> counts, std::int64_t chunk, const Body& body) {
  std::vector<std::int64_t> ends;  // where each tensor ends if all lie end to end
  std::int64_t total = 0;
  for (const std::int64_t count : counts) ends.push_back(total += count);
  parallel_for(total, chunk, [&](std::int64_t begin, std::int64_t end) {
    auto i =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (; begin < end; ++i) {
      const std::int64_t first = ends[i] - counts[i], last = std::min(end, ends[i]);
      if (begin < last) body(i, begin - first, last - first);
      begin = last;
    }
  });
}

template <typename Body>
void for_each_chunk(std::span<const Tensor> tensors, std::int64_t chunk, const Body& body) {
  std::vector<std::int64_t> counts;
  for (const Tensor& tensor : tensors) counts.push_back(tensor.numel());
  for_each_chunk(std::span<const std::int64_t>(counts), chunk, body);
}

}  // namespace tessera::cpu
