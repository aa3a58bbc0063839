// Problems for attention's tests, with references in double.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/attention/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

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
  void run() const {
    forward();
    backward();
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

/// All that attention and its gradients compute.
inline std::vector<std::vector<double>> results_of(const AttentionProblem& x) {
  return {elements(x.o), elements(x.dq), elements(x.dk), elements(x.dv), to_doubles(x.logsumexp)};
}

/// `value` as a tensor of this dtype holds it.
inline double rounded_to(DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::bf16) return static_cast<float>(bfloat16(single));
  if (dtype == DType::f16) return static_cast<float>(float16(single));
  return dtype == DType::f32 ? single : value;
}

/// Attention in float64 by Eigen: every score of a head at once, and the softmax's Jacobian written
/// out. With `storage` every tensor of a framework without a fused kernel (S, P, dP, dS and the
/// outputs) is rounded to that dtype.
struct AttentionReference {
  std::vector<double> o, logsumexp, dq, dk, dv;

  explicit AttentionReference(const AttentionProblem& problem, DType storage = DType::f64);
};

/// The bounds of the errors. Outputs are rounded once to their dtype. Gradients also depend on O as it
/// was stored.
struct AttentionBounds {
  DType dtype;
  double output, gradient;
};
inline const std::vector<AttentionBounds> kAttentionBounds = [] {
  std::vector<AttentionBounds> bounds = {
      {DType::f32, 1e-6, 2e-6}, {DType::bf16, 0x1p-8, 0x1p-7}, {DType::f16, 0x1p-11, 0x1p-10}};
  if (!kOnGpu) bounds.push_back({DType::f64, 1e-13, 1e-12});
  return bounds;
}();

/// Runs the problem and compares with the reference. `of_statistics` bounds logsumexp's error in f32.
inline void check_errors(const AttentionProblem& problem, const AttentionBounds& bounds,
                         double of_statistics) {
  const AttentionSizes& n = problem.sizes;
  CAPTURE(name_of(problem.dtype), n.batch, n.queries, n.keys, n.heads, n.kv_heads, n.head_size);
  const AttentionReference reference(problem);
  problem.run();
  CHECK(relative_error(elements(problem.o), reference.o) <= bounds.output);
  CHECK(relative_error(to_doubles(problem.logsumexp), reference.logsumexp) <=
        (problem.dtype == DType::f64 ? 1e-14 : of_statistics));
  CHECK(relative_error(elements(problem.dv), reference.dv) <= bounds.output);
  CHECK(relative_error(elements(problem.dq), reference.dq) <= bounds.gradient);
  CHECK(relative_error(elements(problem.dk), reference.dk) <= bounds.gradient);
}

}  // namespace tessera::test
