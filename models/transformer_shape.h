// The sizes of a decoder-only transformer, and the work that follows from them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "autograd/experts.h"
#include "autograd/operations.h"
#include "kernels/op.h"

namespace tessera {

/// The sizes that decide which matrix products a model computes, in the terms of every family.
struct TransformerShape {
  std::int64_t vocab_size = 0;
  /// The longest sequence, in tokens.
  std::int64_t context = 0;
  std::int64_t layers = 0;
  /// Channels of the residual stream.
  std::int64_t width = 0;
  std::int64_t heads = 0;
  /// Heads of keys and values; fewer than `heads` with grouped queries.
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  /// Channels inside the feed-forward layer.
  std::int64_t mlp_width = 0;
  /// Layers that are mixtures of experts instead.
  struct Experts {
    /// How many layers are.
    std::int64_t layers = 0;
    std::int64_t count = 0;
    std::int64_t per_token = 0;
    /// Channels inside an expert, and inside the one that every token takes (0: no such expert).
    std::int64_t width = 0;
    std::int64_t shared_width = 0;
    /// The place where a token's weight comes in.
    WeighedInput weighed = WeighedInput::down;
  };
  /// Whether the feed-forward layer has a gate next to its first product (SwiGLU).
  bool gated_mlp = false;
  /// How the blocks store their weights. The head's weight is always [vocab_size, width].
  WeightLayout layout = WeightLayout::out_in;
  Experts experts = {};
  /// Layers with attention that reaches so many tokens.
  struct Near {
    std::int64_t layers = 0;
    std::int64_t tokens = 0;
  };
  /// Within chunks, or to the last tokens before each. A model has one of the two.
  Near chunks = {}, windows = {};
  /// Whether queries and keys have norms with weights.
  bool qk_norm = false;
  /// Whether they have norms without weights, in some layers.
  bool plain_qk_norm = false;
};

/// The largest sizes that a model may have. They are far above any published model, and small
/// enough that no product of sizes overflows 64 bits.
struct LargestSizes {
  static constexpr std::int64_t vocab_size = std::int64_t{1} << 24;
  static constexpr std::int64_t context = std::int64_t{1} << 24;
  static constexpr std::int64_t layers = 4096;
  static constexpr std::int64_t width = std::int64_t{1} << 20;
  /// Channels of all experts of a layer together.
  static constexpr std::int64_t expert_channels = std::int64_t{1} << 22;
  static constexpr std::int64_t heads = std::int64_t{1} << 16;
};

/// Raises Error unless 1 <= value <= most: "layers is 0; expected 1 to 4096".
void check_size(std::string_view name, std::int64_t value, std::int64_t most);

/// Checks the sizes that the hyperparameters of every family have, before anything is computed
/// from them. Raises Error as check_size does.
template <typename Hyperparameters>
void check_sizes(const Hyperparameters& sizes) {
  check_size("vocab_size", sizes.vocab_size, LargestSizes::vocab_size);
  check_size("context", sizes.context, LargestSizes::context);
  check_size("layers", sizes.layers, LargestSizes::layers);
  check_size("heads", sizes.heads, LargestSizes::heads);
  check_size("width", sizes.width, LargestSizes::width);
}

/// The configuration, checked before a member is made from it.
template <typename Config>
const Config& checked(const Config& config) {
  check_config(config);
  return config;
}

/// C [m, n] = op(A) op(B) with inner dimension k, `count` times.
struct MatmulShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;
  std::int64_t count = 1;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(count);
  }
};

/// The matrix products of one forward and backward pass over `tokens` tokens, without attention's.
/// Experts have equal loads, rounded up.
std::vector<MatmulShape> training_matmuls(const TransformerShape& shape, std::int64_t tokens);

/// Floating-point operations of causal attention in one forward pass over `batch` sequences, in all
/// layers: a third of attention's part in training_flops().
double attention_flops(const TransformerShape& shape, std::int64_t batch,
                       std::int64_t sequence_length);

/// Floating-point operations of one forward and backward pass over `batch` sequences: 6 per token
/// and weight of a matrix product, and 6 * layers * heads * head_size * sequence_length per token for
/// causal attention: half of the full square, of the chunks' squares, or of the square less the part
/// beyond the windows. The head counts, lookups do not; of experts only those count that a token
/// takes. Recomputation does not count.
double training_flops(const TransformerShape& shape, std::int64_t batch,
                      std::int64_t sequence_length);

}  // namespace tessera
