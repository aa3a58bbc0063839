#include "models/key_value_cache.h"

#include <optional>

#include "kernels/attention/op.h"
#include "kernels/attention/scale.h"
#include "kernels/columns/op.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// Where the rows of `tokens` new tokens belong: [tokens, channels] behind those of the cache's.
Tensor new_rows(Tensor& rows, std::int64_t tokens, std::int64_t channels, DType dtype,
                const KeyValueCache& cache) {
  check(cache.length + tokens <= cache.capacity,
        "a cache for {} tokens cannot hold {} more than its {}", cache.capacity, tokens,
        cache.length);
  if (!rows.defined()) rows = Tensor::empty({1, cache.capacity, channels}, dtype);
  return rows.reshape({cache.capacity, channels}).slice(cache.length, cache.length + tokens);
}

/// Adds fresh rows to those of the cache's tokens.
void append(Tensor& rows, const Tensor& fresh, const KeyValueCache& cache) {
  new_rows(rows, fresh.size(1), fresh.size(2), fresh.dtype(), cache).copy_from(fresh);
}

Tensor attend_to(const Heads& q, const Heads& k, const Heads& v, const Tensor& first_key,
                 std::optional<double> scale) {
  const DType dtype = q.tensor.dtype();
  const Tensor y = Tensor::empty({1, q.tokens, q.heads * q.head_size}, dtype);
  const Tensor logsumexp = Tensor::empty({1, q.heads, q.tokens}, statistics_dtype(dtype));
  attention_forward(heads_of(y, 0, q.heads, q.head_size), logsumexp, q, k, v,
                    attention_scale(q.head_size, scale), first_key);
  return y;
}

}  // namespace

Tensor cached_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                        KeyValueCache& cache, std::int64_t layer, const Tensor& first_key,
                        std::optional<double> scale) {
  const std::int64_t head_size = qkv.size(2) / (heads + 2 * kv_heads);
  const std::int64_t fresh = qkv.size(1), tokens = cache.length + fresh;
  const std::int64_t queries = heads * head_size, keys = kv_heads * head_size;
  Tensor& rows = cache.layers[static_cast<std::size_t>(layer)].keys;
  copy_columns(new_rows(rows, fresh, 2 * keys, qkv.dtype(), cache),
               {qkv.reshape({fresh, qkv.size(2)}), queries, 2 * keys});
  return attend_to(heads_of(qkv, 0, heads, head_size),
                   heads_of(rows, 0, kv_heads, head_size, tokens),
                   heads_of(rows, keys, kv_heads, head_size, tokens), first_key, scale);
}

Tensor cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t heads,
                        std::int64_t kv_heads, KeyValueCache& cache, std::int64_t layer,
                        const Tensor& first_key) {
  const std::int64_t head_size = q.size(2) / heads;
  const std::int64_t tokens = cache.length + q.size(1);
  KeyValueCache::Layer& rows = cache.layers[static_cast<std::size_t>(layer)];
  append(rows.keys, k, cache);
  append(rows.values, v, cache);
  return attend_to(heads_of(q, 0, heads, head_size),
                   heads_of(rows.keys, 0, kv_heads, head_size, tokens),
                   heads_of(rows.values, 0, kv_heads, head_size, tokens), first_key, {});
}

}  // namespace tessera
