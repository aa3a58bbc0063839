// The least bytes that a layer's own kernels can move in 16 bits.
#pragma once

#include "models/transformer_shape.h"

namespace tessera {

struct LayerBytes {
  double forward = 0, backward = 0;
};

/// For N tokens through a layer of C channels, H heads of queries and K of keys of D channels:
///
///   operation                       forward             backward
///   two norms                       2 x 4NC             2 x 8NC
///   RoPE, in place                  4N(H + K)D          0
///   norms of q and k, with it       4N(H + K)           6N(H + K)D + 4N(H + K)
///   attention                       4N(H + K)D + 4NH    8N(H + K)D + 4NH
///
/// Each operation reads its inputs and writes its results once. The products that end a branch add
/// the residual. Backward, a norm also reads the residual's gradient. The norms of q and k (Qwen3) are
/// part of RoPE's pass: forward they add a statistic for each head. GPT-2 has no RoPE. GELU, SwiGLU and
/// biases can be part of the products, and dq and dk can be rotated back before they are stored: 0. Attention's
/// backward pass reads q, k, v, o, do and a statistic and writes dq, dk and dv. With experts a token has k of
/// them. Their products read the tokens' rows where these are.
/// Moving the rows of results back reads k for a token and writes one: 2NC(k + 1), forward and backward.
LayerBytes least_layer_bytes(const TransformerShape& shape, std::int64_t tokens);

}  // namespace tessera
