#include "tools/bench/counts/layer_bytes.h"

namespace tessera {

LayerBytes least_layer_bytes(const TransformerShape& shape, std::int64_t tokens) {
  const auto N = static_cast<double>(tokens), C = static_cast<double>(shape.width);
  const auto H = static_cast<double>(shape.heads), K = static_cast<double>(shape.kv_heads);
  const auto D = static_cast<double>(shape.head_size);
  const bool has_experts = shape.experts.layers > 0;
  const auto of_token = static_cast<double>(shape.experts.per_token);
  LayerBytes least;
  least.forward = 2 * 4 * N * C + 4 * N * (H + K) * D + 4 * N * H;
  least.backward = 2 * 8 * N * C + 8 * N * (H + K) * D + 4 * N * H;
  if (shape.gated_mlp) least.forward += 4 * N * (H + K) * D;
  if (shape.qk_norm) {
    least.forward += 4 * N * (H + K);
    least.backward += 6 * N * (H + K) * D + 4 * N * (H + K);
  }
  if (has_experts) {
    least.forward += 2 * N * C * (of_token + 1);
    least.backward += 2 * N * C * (of_token + 1);
  }
  return least;
}

}  // namespace tessera
