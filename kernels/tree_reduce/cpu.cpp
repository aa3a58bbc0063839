#include "kernels/cpu/parallel.h"
#include "kernels/tree_reduce/op.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::cpu {
namespace {

// Up to this many sources the tree is one expression per element, in one pass over memory. The tree
// of more sources is walked in blocks.
constexpr std::size_t kWidestExpression = 8;
// Elements of a block. The partial sums of all levels stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;
// Elements per task of a thread.
constexpr std::int64_t kChunk = 64 * kBlock;

/// How many of `count` sources are in the first half of their tree.
constexpr std::size_t first_half(std::size_t count) {
  return std::bit_floor(count - 1);
}

/// The tree over element i of sources First to First + Count - 1.
template <typename Sum, std::size_t First, std::size_t Count, typename Sources, typename Combine>
inline Sum expression(const Sources& sources, std::int64_t i, const Combine& combine) {
  if constexpr (Count == 1) {
    return static_cast<Sum>(sources[First][i]);
  } else {
    constexpr std::size_t half = first_half(Count);
    return combine(expression<Sum, First, half>(sources, i, combine),
                   expression<Sum, First + half, Count - half>(sources, i, combine));
  }
}

/// Elements [begin, end) of the result, for exactly Count sources. The result may be one of them:
/// element i is read of all before it is written.
template <typename Sum, std::size_t Count, typename Result, typename T, typename Combine>
void express(Result* result, std::span<const T* const> data, std::int64_t begin, std::int64_t end,
             const Combine& combine) {
  std::array<const T*, Count> sources;
  std::copy_n(data.begin(), Count, sources.begin());
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    result[i] = static_cast<Result>(expression<Sum, 0, Count>(sources, i, combine));
  }
}

/// The tree over `sources`, for `count` <= kBlock elements from `begin` on. `partials` has kBlock
/// elements for every level below.
template <typename Sum, typename T, typename Combine>
void walk(Sum* to, std::span<const T* const> sources, std::int64_t begin, std::int64_t count,
          Sum* partials, const Combine& combine) {
  if (sources.size() == 1) {
    const T* from = sources[0] + begin;
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Sum>(from[i]);
    return;
  }
  const std::size_t half = first_half(sources.size());
  walk(to, sources.first(half), begin, count, partials + kBlock, combine);
  walk(partials, sources.subspan(half), begin, count, partials + kBlock, combine);
  for (std::int64_t i = 0; i < count; ++i) to[i] = combine(to[i], partials[i]);
}

/// Elements [begin, end) of the result, for any number of sources.
template <typename Sum, typename Result, typename T, typename Combine>
void walk_blocks(Result* result, std::span<const T* const> sources, std::int64_t begin,
                 std::int64_t end, const Combine& combine) {
  const auto levels = static_cast<std::int64_t>(std::bit_width(sources.size()));
  std::vector<Sum> scratch(static_cast<std::size_t>((levels + 2) * kBlock));
  for (std::int64_t i = begin; i < end; i += kBlock) {
    const std::int64_t count = std::min(kBlock, end - i);
    // Into scratch first: the result may lie over a source that is still to be read.
    walk(scratch.data(), sources, i, count, scratch.data() + kBlock, combine);
    for (std::int64_t j = 0; j < count; ++j) result[i + j] = static_cast<Result>(scratch[j]);
  }
}

template <typename Sum, typename T, typename Result, typename Combine>
void combine_all(Result* result, std::span<const Tensor> sources, const Combine& combine) {
  std::vector<const T*> pointers;
  for (const Tensor& source : sources) pointers.push_back(source.data<T>());
  const std::span<const T* const> data(pointers);
  parallel_for(sources[0].numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    const auto with_count = [&]<std::size_t... Counts>(std::index_sequence<Counts...>) {
      const bool expressed =
          ((data.size() == Counts + 1 &&
            (express<Sum, Counts + 1>(result, data, begin, end, combine), true)) ||
           ...);
      if (!expressed) walk_blocks<Sum>(result, data, begin, end, combine);
    };
    with_count(std::make_index_sequence<kWidestExpression>());
  });
}

template <typename T>
void sum_into(Out result, std::span<const Tensor> sources) {
  const auto add = [](float a, float b) { return a + b; };
  if (result.dtype() == DType::f32) {
    combine_all<float, T>(result.data<float>(), sources, add);
  } else {
    combine_all<float, T>(result.data<T>(), sources, add);
  }
}

void sum(Out result, std::span<const Tensor> sources) {
  switch (sources[0].dtype()) {
    case DType::bf16:
      return sum_into<bfloat16>(result, sources);
    case DType::f16:
      return sum_into<float16>(result, sources);
    case DType::i64:
      return combine_all<std::int64_t, std::int64_t>(
          result.data<std::int64_t>(), sources,
          [](std::int64_t a, std::int64_t b) { return a + b; });
    default:
      return sum_into<float>(result, sources);
  }
}

void maximum(Out result, std::span<const Tensor> sources) {
  combine_all<float, float>(result.data<float>(), sources,
                            [](float a, float b) { return a > b || a != a ? a : b; });
}

}  // namespace

void tree_reduce(Out result, std::span<const Tensor> sources, Reduction reduction) {
  reduction == Reduction::sum ? sum(result, sources) : maximum(result, sources);
}

}  // namespace tessera::cpu
