#include "models/key_value_cache.h"

#include <cmath>

#include "kernels/attention/op.h"

namespace tessera {

Tensor cached_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                        KeyValueCache& cache, std::int64_t layer) {
  const std::int64_t channels = qkv.size(2);
  const std::int64_t head_size = channels / (heads + 2 * kv_heads);
  const std::int64_t fresh = qkv.size(1);
  const std::int64_t tokens = cache.length + fresh;

  Tensor& rows = cache.layers[static_cast<std::size_t>(layer)];
  if (!rows.defined()) rows = Tensor::empty({1, cache.capacity, channels}, qkv.dtype());
  rows.reshape({cache.capacity, channels}).slice(cache.length, tokens).copy_from(qkv);

  const Tensor y = Tensor::empty({1, fresh, heads * head_size}, qkv.dtype());
  const Tensor logsumexp = Tensor::empty({1, heads, fresh}, statistics_dtype(qkv.dtype()));
  const std::int64_t keys = heads * head_size;
  const std::int64_t values = keys + kv_heads * head_size;
  attention_forward(heads_of(y, 0, heads, head_size), logsumexp, heads_of(qkv, 0, heads, head_size),
                    heads_of(rows, keys, kv_heads, head_size, tokens),
                    heads_of(rows, values, kv_heads, head_size, tokens),
                    static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size))));
  return y;
}

}  // namespace tessera
