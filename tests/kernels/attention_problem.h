// Problems for attention's tests, with references in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
};

/// Inputs and poisoned outputs of one call. Queries, keys and values lie in one packed tensor, as a
/// model has them, unless there are fewer queries than keys.
struct AttentionProblem {
  AttentionSizes sizes;
  DType dtype;
  float scale;
  Heads q, k, v, o, d_o, dq, dk, dv;
  Tensor logsumexp;
  Tensor first_key;  // undefined: plain causal attention

  AttentionProblem(const AttentionSizes& n, DType type, double input_scale = 1.0)
      : sizes(n), dtype(type), scale(1.0f / std::sqrt(static_cast<float>(n.head_size))) {
    const std::int64_t q_width = n.heads * n.head_size, kv_width = n.kv_heads * n.head_size;
    const Shape packed_shape{n.batch, n.keys, q_width + 2 * kv_width};
    const Tensor packed = normal_tensor(packed_shape, type, "packed", input_scale);
    const Tensor d_packed = poisoned(packed_shape, type);
    const Shape q_shape{n.batch, n.queries, q_width};
    const bool self = n.queries == n.keys;
    q = self ? query_heads(packed) : query_heads(normal_tensor(q_shape, type, "q", input_scale));
    dq = self ? query_heads(d_packed) : query_heads(poisoned(q_shape, type));
    k = heads_of(packed, q_width, n.kv_heads, n.head_size);
    v = heads_of(packed, q_width + kv_width, n.kv_heads, n.head_size);
    dk = heads_of(d_packed, q_width, n.kv_heads, n.head_size);
    dv = heads_of(d_packed, q_width + kv_width, n.kv_heads, n.head_size);
    o = query_heads(poisoned(q_shape, type));
    d_o = query_heads(normal_tensor(q_shape, type, "d_o"));
    logsumexp = poisoned({n.batch, n.heads, n.queries}, statistics_dtype(type));
  }

  Heads query_heads(const Tensor& tensor) const {
    return heads_of(tensor, 0, sizes.heads, sizes.head_size);
  }
  void forward() const { attention_forward(o, logsumexp, q, k, v, scale, first_key); }
  void backward() const {
    attention_backward(dq, dk, dv, d_o, q, k, v, o, logsumexp, scale, first_key);
  }
};

/// The elements of a Heads in the order batch, token, head, channel.
inline std::vector<double> elements(const Heads& x) {
  const std::vector<double> all = to_doubles(x.tensor);
  std::vector<double> values;
  for (std::int64_t b = 0; b < x.batch; ++b) {
    for (std::int64_t t = 0; t < x.tokens; ++t) {
      const std::int64_t first = x.offset + b * x.batch_stride + t * x.token_stride;
      values.insert(values.end(), all.begin() + first, all.begin() + first + x.heads * x.head_size);
    }
  }
  return values;
}

/// `value` as a tensor of this dtype holds it.
inline double rounded_to(DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::bf16) return static_cast<float>(bfloat16(single));
  if (dtype == DType::f16) return static_cast<float>(float16(single));
  return dtype == DType::f32 ? single : value;
}

/// Attention in double: every score of a head at once, and the softmax's Jacobian written out. With
/// `storage` every tensor of a framework without a fused kernel (S, P, dP, dS and the outputs) is
/// rounded to that dtype.
struct AttentionReference {
  std::vector<double> o, logsumexp, dq, dk, dv;

  explicit AttentionReference(const AttentionProblem& x, DType storage = DType::f64)
      : dtype(storage),
        n(x.sizes),
        scale(x.scale),
        q(elements(x.q)),
        k(elements(x.k)),
        v(elements(x.v)),
        d_o(elements(x.d_o)) {
    if (x.first_key.defined()) first_key = x.first_key.to_vector<std::int32_t>();
    o.resize(q.size());
    dq.resize(q.size());
    dk.resize(k.size());
    dv.resize(v.size());
    logsumexp.resize(static_cast<std::size_t>(n.batch * n.heads * n.queries));
    for (std::int64_t b = 0; b < n.batch; ++b) {
      for (std::int64_t h = 0; h < n.heads; ++h) {
        for (std::int64_t i = 0; i < n.queries; ++i) query(b, h, i);
      }
    }
    for (std::vector<double>* output : {&o, &dq, &dk, &dv}) {
      for (double& value : *output) value = rounded(value);
    }
  }

 private:
  std::int64_t q_at(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return ((b * n.queries + i) * n.heads + h) * n.head_size;
  }
  std::int64_t k_at(std::int64_t b, std::int64_t j, std::int64_t h) const {
    return ((b * n.keys + j) * n.kv_heads + h / (n.heads / n.kv_heads)) * n.head_size;
  }
  double dot(const std::vector<double>& x, std::int64_t at_x, const std::vector<double>& y,
             std::int64_t at_y) const {
    double sum = 0.0;
    for (std::int64_t c = 0; c < n.head_size; ++c) sum += x[at_x + c] * y[at_y + c];
    return sum;
  }
  void add(std::vector<double>& to, std::int64_t at_to, double factor, const std::vector<double>& x,
           std::int64_t at_x) const {
    for (std::int64_t c = 0; c < n.head_size; ++c) to[at_to + c] += factor * x[at_x + c];
  }

  double rounded(double value) const { return rounded_to(dtype, value); }

  void query(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t visible = n.keys - n.queries + i + 1, at = q_at(b, i, h);
    const std::int64_t first = first_key.empty() ? 0 : first_key[b * n.queries + i];
    std::vector<double> p, dp;
    for (std::int64_t j = first; j < visible; ++j) {
      p.push_back(rounded(scale * dot(q, at, k, k_at(b, j, h))));
    }
    const double largest = *std::max_element(p.begin(), p.end());
    double sum = 0.0, mean = 0.0;
    for (double& score : p) sum += score = std::exp(score - largest);
    logsumexp[(b * n.heads + h) * n.queries + i] = largest + std::log(sum);
    for (std::int64_t j = first; j < visible; ++j) {
      double& weight = p[j - first];
      weight = rounded(weight / sum);
      dp.push_back(rounded(dot(d_o, at, v, k_at(b, j, h))));
      mean += weight * dp.back();
      add(o, at, weight, v, k_at(b, j, h));
    }
    for (std::int64_t j = first; j < visible; ++j) {
      const double weight = p[j - first];
      const double ds = scale * rounded(weight * (dp[j - first] - mean));
      add(dv, k_at(b, j, h), weight, d_o, at);
      add(dq, at, ds, k, k_at(b, j, h));
      add(dk, k_at(b, j, h), ds, q, at);
    }
  }

  DType dtype;
  AttentionSizes n;
  double scale;
  std::vector<double> q, k, v, d_o;
  std::vector<std::int32_t> first_key;
};

}  // namespace tessera::test
