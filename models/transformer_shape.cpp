#include "models/transformer_shape.h"

#include <algorithm>

#include "runtime/check.h"

namespace tessera {
namespace {

/// A weight of some blocks: `inputs` channels to `outputs` channels.
struct BlockWeight {
  std::int64_t inputs;
  std::int64_t outputs;
  /// How many blocks have it.
  std::int64_t blocks;
  /// Copies in a block, of which each token takes `taken`.
  std::int64_t copies = 1;
  std::int64_t taken = 1;
};

void add_mlp(std::vector<BlockWeight>& weights, const TransformerShape& s, std::int64_t inner,
             BlockWeight each) {
  if (inner == 0 || each.blocks == 0) return;
  weights.push_back({s.width, (s.gated_mlp ? 2 : 1) * inner, each.blocks, each.copies, each.taken});
  weights.push_back({inner, s.width, each.blocks, each.copies, each.taken});
}

std::vector<BlockWeight> block_weights(const TransformerShape& s) {
  const std::int64_t queries = s.heads * s.head_size;
  const std::int64_t keys_and_values = 2 * s.kv_heads * s.head_size;
  std::vector<BlockWeight> weights = {{s.width, queries + keys_and_values, s.layers},
                                      {queries, s.width, s.layers}};
  const TransformerShape::Experts& e = s.experts;
  add_mlp(weights, s, s.mlp_width, {0, 0, s.layers - e.layers});
  if (e.layers > 0) weights.push_back({s.width, e.count, e.layers});  // the router
  add_mlp(weights, s, e.width, {0, 0, e.layers, e.count, e.per_token});
  add_mlp(weights, s, e.shared_width, {0, 0, e.layers});
  return weights;
}

/// The three products of a weight: y = x W, dx = dy W^T and dW = x^T dy, in each copy and block.
void add_products(std::vector<MatmulShape>& products, const BlockWeight& w, WeightLayout layout,
                  std::int64_t tokens) {
  constexpr auto no = Transpose::no;
  constexpr auto yes = Transpose::yes;
  const bool in_out = layout == WeightLayout::in_out;
  const std::int64_t rows = (tokens * w.taken + w.copies - 1) / w.copies;
  const std::int64_t count = w.blocks * w.copies;
  products.push_back({rows, w.outputs, w.inputs, no, in_out ? no : yes, count});
  products.push_back({rows, w.inputs, w.outputs, no, in_out ? yes : no, count});
  // dW has the weight's layout.
  products.push_back(
      {in_out ? w.inputs : w.outputs, in_out ? w.outputs : w.inputs, rows, yes, no, count});
}

}  // namespace

void check_size(std::string_view name, std::int64_t value, std::int64_t most) {
  check(1 <= value && value <= most, "{} is {}; expected 1 to {}", name, value, most);
}

std::vector<MatmulShape> training_matmuls(const TransformerShape& shape, std::int64_t tokens) {
  std::vector<MatmulShape> products;
  for (const BlockWeight& weight : block_weights(shape)) {
    add_products(products, weight, shape.layout, tokens);
  }
  add_products(products, {shape.width, shape.vocab_size, 1}, WeightLayout::out_in, tokens);
  return products;
}

namespace {

/// The sum over layers of the squares of attention over a sequence, divided by its length.
double squares(const TransformerShape& shape, std::int64_t sequence_length) {
  const auto length = static_cast<double>(sequence_length);
  const TransformerShape::Near &chunks = shape.chunks, &windows = shape.windows;
  double sum = static_cast<double>(shape.layers - chunks.layers - windows.layers) * length;
  if (chunks.layers > 0) {
    const auto rest = static_cast<double>(sequence_length % chunks.tokens);
    const double whole = static_cast<double>(sequence_length / chunks.tokens * chunks.tokens) *
                         static_cast<double>(chunks.tokens);
    sum += static_cast<double>(chunks.layers) * (whole + rest * rest) / length;
  }
  if (windows.layers > 0) {
    const double hidden =
        static_cast<double>(std::max<std::int64_t>(0, sequence_length - windows.tokens));
    sum += static_cast<double>(windows.layers) * (length - hidden * hidden / length);
  }
  return sum;
}

}  // namespace

double attention_flops(const TransformerShape& shape, std::int64_t batch,
                       std::int64_t sequence_length) {
  const auto tokens = static_cast<double>(batch) * static_cast<double>(sequence_length);
  return tokens * 2.0 * static_cast<double>(shape.heads * shape.head_size) *
         squares(shape, sequence_length);
}

double training_flops(const TransformerShape& shape, std::int64_t batch,
                      std::int64_t sequence_length) {
  double weights = static_cast<double>(shape.vocab_size) * static_cast<double>(shape.width);
  for (const BlockWeight& weight : block_weights(shape)) {
    weights += static_cast<double>(weight.blocks * weight.taken) *
               static_cast<double>(weight.inputs) * static_cast<double>(weight.outputs);
  }
  const auto tokens = static_cast<double>(batch) * static_cast<double>(sequence_length);
  return tokens * 6.0 * weights + 3.0 * attention_flops(shape, batch, sequence_length);
}

}  // namespace tessera
