#include "models/transformer_shape.h"

#include "runtime/check.h"

namespace tessera {
namespace {

/// A weight of one block: `inputs` channels to `outputs` channels.
struct BlockWeight {
  std::int64_t inputs;
  std::int64_t outputs;
};

std::vector<BlockWeight> block_weights(const TransformerShape& s) {
  const std::int64_t queries = s.heads * s.head_size;
  const std::int64_t keys_and_values = 2 * s.kv_heads * s.head_size;
  return {{s.width, queries + keys_and_values},
          {queries, s.width},
          {s.width, (s.gated_mlp ? 2 : 1) * s.mlp_width},
          {s.mlp_width, s.width}};
}

/// The three products of a weight: y = x W, dx = dy W^T and dW = x^T dy, each `count` times.
void add_products(std::vector<MatmulShape>& products, BlockWeight w, WeightLayout layout,
                  std::int64_t tokens, std::int64_t count) {
  constexpr auto no = Transpose::no;
  constexpr auto yes = Transpose::yes;
  const bool in_out = layout == WeightLayout::in_out;
  products.push_back({tokens, w.outputs, w.inputs, no, in_out ? no : yes, count});
  products.push_back({tokens, w.inputs, w.outputs, no, in_out ? yes : no, count});
  // dW has the weight's layout.
  products.push_back(
      {in_out ? w.inputs : w.outputs, in_out ? w.outputs : w.inputs, tokens, yes, no, count});
}

}  // namespace

void check_size(std::string_view name, std::int64_t value, std::int64_t most) {
  check(1 <= value && value <= most, "{} is {}; expected 1 to {}", name, value, most);
}

std::vector<MatmulShape> training_matmuls(const TransformerShape& shape, std::int64_t tokens) {
  std::vector<MatmulShape> products;
  for (const BlockWeight& weight : block_weights(shape)) {
    add_products(products, weight, shape.layout, tokens, shape.layers);
  }
  add_products(products, {shape.width, shape.vocab_size}, WeightLayout::out_in, tokens, 1);
  return products;
}

double training_flops(const TransformerShape& shape, std::int64_t batch,
                      std::int64_t sequence_length) {
  double weights = static_cast<double>(shape.vocab_size) * static_cast<double>(shape.width);
  for (const BlockWeight& weight : block_weights(shape)) {
    weights += static_cast<double>(shape.layers) * static_cast<double>(weight.inputs) *
               static_cast<double>(weight.outputs);
  }
  const double attention = static_cast<double>(shape.layers * shape.heads * shape.head_size) *
                           static_cast<double>(sequence_length);
  const auto tokens = static_cast<double>(batch) * static_cast<double>(sequence_length);
  return tokens * 6.0 * (weights + attention);
}

}  // namespace tessera
