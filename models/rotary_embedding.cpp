#include "models/rotary_embedding.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/category.h"

namespace tessera {

RotaryEmbedding::RotaryEmbedding(const RopeConfig& rope, const TransformerShape& shape,
                                 RopePairs pairs)
    : RotaryEmbedding([frequencies = frequencies_of(rope, shape.head_size), pairs](
                          std::int64_t positions,
                          DType dtype) { return rope_table(positions, frequencies, pairs, dtype); },
                      shape) {}

RotaryEmbedding::RotaryEmbedding(MakeTable make_table, const TransformerShape& shape)
    : make_table_(std::move(make_table)), head_size_(shape.head_size), context_(shape.context) {}

Variable RotaryEmbedding::operator()(Variable x, std::int64_t heads,
                                     const TokenPositions& positions) const {
  const Rotary rotary = of(x, positions);
  return rope(std::move(x), heads, head_size_, rotary.table, rotary.positions);
}

Rotary RotaryEmbedding::of(const Variable& x, const TokenPositions& positions) const {
  // A position in a document is less than the row's length.
  const std::int64_t end = positions.end > 0 ? positions.end : positions.first + x.shape()[1];
  return {table(end, x.dtype()), positions};
}

const RopeTable& RotaryEmbedding::table(std::int64_t positions, DType dtype) const {
  const DType wanted = statistics_dtype(dtype);
  const bool fits = table_.cosine.defined() && table_.cosine.dtype() == wanted &&
                    table_.cosine.size(0) >= positions;
  if (!fits) {
    const CategoryScope category(Category::other);
    const auto power =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positions)));
    table_ = make_table_(std::min(power, context_), wanted);
  }
  return table_;
}

}  // namespace tessera
