#include "models/rotary_embedding.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/category.h"

namespace tessera {

RotaryEmbedding::RotaryEmbedding(RopeFrequencies frequencies, RopePairs pairs, std::int64_t context)
    : frequencies_(std::move(frequencies)), pairs_(pairs), context_(context) {}

Variable RotaryEmbedding::operator()(Variable x, std::int64_t heads,
                                     const RopePositions& positions) const {
  const auto head_size = static_cast<std::int64_t>(2 * frequencies_.of_pair.size());
  // A position in a document is less than the row's length.
  const RopeTable& all = table(positions.first + x.shape()[1], x.dtype());
  return rope(std::move(x), heads, head_size, all, positions);
}

const RopeTable& RotaryEmbedding::table(std::int64_t positions, DType dtype) const {
  const DType wanted = statistics_dtype(dtype);
  const bool fits = table_.cosine.defined() && table_.cosine.dtype() == wanted &&
                    table_.cosine.size(0) >= positions;
  if (!fits) {
    const CategoryScope category(Category::other);
    const auto power =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positions)));
    table_ = rope_table(std::min(power, context_), frequencies_, pairs_, wanted);
  }
  return table_;
}

}  // namespace tessera
