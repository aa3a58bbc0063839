#include "models/rotary_embedding.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/category.h"

namespace tessera {

RotaryEmbedding::RotaryEmbedding(const RopeConfig& rope, const TransformerShape& shape,
                                 RopePairs pairs)
    : RotaryEmbedding(
          [rope, head_size = shape.head_size, pairs](std::int64_t positions, DType dtype,
                                                     std::int64_t length) {
            return rope_table(positions, frequencies_of(rope, head_size, length), pairs, dtype);
          },
          shape) {
  scaling_ = rope.scaling;
}

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
  const std::int64_t length = positions.length > 0 ? positions.length : x.shape()[1];
  return {table(end, x.dtype(), deciding_length(scaling_, length)), positions};
}

const RopeTable& RotaryEmbedding::table(std::int64_t positions, DType dtype,
                                        std::int64_t length) const {
  // Enough for the sequences of a batch.
  constexpr std::size_t kMostTables = 64;
  if (tables_.size() == kMostTables && !tables_.contains(length)) tables_.clear();
  RopeTable& table = tables_[length];
  const DType wanted = statistics_dtype(dtype);
  const bool fits =
      table.cosine.defined() && table.cosine.dtype() == wanted && table.cosine.size(0) >= positions;
  if (!fits) {
    const CategoryScope category(Category::other);
    const auto power =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positions)));
    table = make_table_(std::min(power, context_), wanted, length);
  }
  return table;
}

}  // namespace tessera
