// The keys and values of the tokens that a model has seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "autograd/variable.h"
#include "models/transformer_shape.h"

namespace tessera {

/// With a cache, each further token costs one row of work. It serves one sequence.
struct KeyValueCache {
  /// An empty cache for at most `most_tokens`, or the model's whole context. That is the sequence's
  /// length for RoPE's scaling (models/rotary_embedding.h). A layer gets its memory
  /// with the first token, in the dtype that the model computes in.
  explicit KeyValueCache(const TransformerShape& shape,
                         std::int64_t most_tokens = std::numeric_limits<std::int64_t>::max())
      : layers(static_cast<std::size_t>(shape.layers)),
        capacity(std::min(shape.context, most_tokens)) {}

  /// The rows of a layer's tokens, [1, capacity, channels]. Of packed rows it has one tensor, `keys`:
  /// the keys and values of a token side by side.
  struct Layer {
    Tensor keys, values;
  };
  std::vector<Layer> layers;
  /// Tokens in the cache.
  std::int64_t length = 0;
  std::int64_t capacity = 0;
};

/// Causal attention of the newest rows, qkv [1, n, (heads + 2 kv_heads) head_size], over the
/// cache's rows and themselves. Adds the rows to the layer's cache but leaves `length` as it is:
/// the trunk raises it once all layers have run. No gradients. Result [1, n, heads * head_size].
/// `first_key` (i32 [1, n]) is the first key that each query sees; undefined for the first of all. The
/// scale is 1 / sqrt(head_size) unless it is given.
Tensor cached_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                        KeyValueCache& cache, std::int64_t layer,
                        const Tensor& first_key = Tensor(), std::optional<double> scale = {});
/// The same for separate rows: q [1, n, heads * head_size], k and v [1, n, kv_heads * head_size].
Tensor cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t heads,
                        std::int64_t kv_heads, KeyValueCache& cache, std::int64_t layer,
                        const Tensor& first_key = Tensor());

}  // namespace tessera
