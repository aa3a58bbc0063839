// Attention and rotary positions.
#include "autograd/operations.h"

#include <utility>
#include <vector>

#include "autograd/activation_watch.h"
#include "autograd/activations.h"
#include "autograd/context_attention.h"
#include "autograd/engine.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "kernels/attention/op.h"
#include "kernels/attention/scale.h"
#include "kernels/qk_norm/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// The tensor, or a copy if it must keep its elements.
Tensor own(const Tensor& tensor, bool in_place) {
  if (in_place) return tensor;
  const CategoryScope category(Category::activations);
  return tensor.clone();
}

/// The first `heads` heads of x [B, T, C], rotated; in place if x is the last handle on them.
Tensor rotated(const Variable& x, std::int64_t heads, std::int64_t head_size,
               const Rotary& rotary) {
  if (!rotary.defined()) return x.data();
  const Tensor y = own(x.data(), x.is_last());
  rope_forward(heads_of(y, 0, heads, head_size), rotary.table, rotary.positions);
  return y;
}

/// attention_forward; over the keys of all ranks of a row if these share out its tokens.
void attend_forward(const std::shared_ptr<const ContextAxis>& axis, const Heads& o, Out logsumexp,
                    const Heads& q, const Heads& k, const Heads& v, float scale,
                    const Tensor& first_key) {
  if (axis == nullptr) {
    attention_forward(o, logsumexp, q, k, v, scale, first_key);
    if (ActivationWatch* const watch = activation_watch()) {
      watch->attention(q, k, scale, first_key);
    }
  } else {
    context_attention_forward(*axis, o, logsumexp, q, k, v, scale, first_key);
  }
}

/// Its attention_backward.
void attend_backward(const std::shared_ptr<const ContextAxis>& axis, const Heads& dq,
                     const Heads& dk, const Heads& dv, const Heads& d_o, const Heads& q,
                     const Heads& k, const Heads& v, const Heads& o, const Tensor& logsumexp,
                     float scale, const Tensor& first_key, const Rotary* rotary,
                     Tensor* row_sums = nullptr) {
  if (axis == nullptr) {
    attention_backward(dq, dk, dv, d_o, q, k, v, o, logsumexp, scale, first_key, rotary, row_sums);
    return;
  }
  context_attention_backward(*axis, dq, dk, dv, d_o, q, k, v, o, logsumexp, scale, first_key);
  // Gradients of keys arrive from other ranks, so none is rotated in the kernel that sums it.
  if (rotary != nullptr) rope_backward(dq, dk, *rotary);
}

/// The largest power of two that divides both numbers, and is at most `most`.
std::int64_t common_power_of_two(std::int64_t a, std::int64_t b, std::int64_t most) {
  std::int64_t power = 1;
  while (2 * power <= most && a % (2 * power) == 0 && b % (2 * power) == 0) power *= 2;
  return power;
}

/// The gradients of the norms' weights, from the leaves of this rank's tokens. In each leaf, tensor ranks
/// that share out the heads add up groups of heads.
class NormWeightGradient {
 public:
  NormWeightGradient(const JoinedGradient& dweight, const SharedAxis& axis, std::int64_t groups)
      : axis_(axis),
        groups_(groups),
        sum_(dweight.window(), dweight.accumulate(), token_leaves()) {}

  /// Adds a leaf: kernel(window, accumulate, group of heads).
  template <typename Kernel>
  void add(const Kernel& kernel) {
    if (axis_ == nullptr) {
      kernel(sum_.next(), sum_.accumulate(), HeadGroup());
      return sum_.added();
    }
    const Tensor& window = sum_.window();
    const Tensor of_leaf = activation(window.shape(), statistics_dtype(window.dtype()));
    LeafSum of_groups(of_leaf, Accumulate::no, groups_);
    for (std::int64_t group = 0; group < groups_; ++group) {
      kernel(of_groups.next(), Accumulate::no, HeadGroup{group, groups_});
      of_groups.added();
    }
    sum_.add(whole_sum(axis_, of_leaf, window.dtype()));
  }

 private:
  const SharedAxis axis_;
  const std::int64_t groups_;
  LeafSum sum_;
};

/// Turns the gradients of normalized queries and keys into those of x's, and adds to the weights'.
void normalize_backward(const Tensor& dx, const Tensor& x, const Tensor& rstd, const QkNorm& norm,
                        std::int64_t heads, std::int64_t kv_heads) {
  const JoinedGradient dweight(norm.weights);
  const SharedAxis axis = dweight.window().defined() ? axis_of(norm.weights) : nullptr;
  const std::int64_t groups =
      axis == nullptr ? 1 : common_power_of_two(heads, kv_heads, axis->own_parts());
  NormWeightGradient sum(dweight, axis, groups);
  const std::int64_t leaves = token_leaves();
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    const auto of = [&](const Tensor& rows) { return rows_of_leaf(rows, leaf, leaves); };
    sum.add([&](Out window, Accumulate accumulate, const HeadGroup& group) {
      qk_norm_backward(of(dx), window, of(x), norm.weights.data(), of(rstd), heads, kv_heads,
                       accumulate, group, norm.offset);
    });
  }
  dweight.finish();
}

}  // namespace

Variable attention(Variable qkv, std::int64_t heads, std::int64_t kv_heads, const Tensor& first_key,
                   const Rotary& rotary, const QkNorm& norm, std::optional<double> scale) {
  check(qkv.shape().rank() == 3 && heads >= 1 && kv_heads >= 1 &&
            qkv.shape()[2] % (heads + 2 * kv_heads) == 0,
        "attention: {} cannot hold {} query heads and {} key and value heads of one size",
        describe(qkv.data()), heads, kv_heads);
  const std::int64_t batch = qkv.shape()[0];
  const std::int64_t tokens = qkv.shape()[1];
  const std::int64_t head_size = qkv.shape()[2] / (heads + 2 * kv_heads);
  const float factor = attention_scale(head_size, scale);
  const auto queries = [heads, head_size](const Tensor& x) {
    return heads_of(x, 0, heads, head_size);
  };
  const auto keys = [heads, kv_heads, head_size](const Tensor& x) {
    return heads_of(x, heads * head_size, kv_heads, head_size);
  };
  const auto values = [heads, kv_heads, head_size](const Tensor& x) {
    return heads_of(x, (heads + kv_heads) * head_size, kv_heads, head_size);
  };

  // With norms, x keeps the heads as they were for the norms' backward pass, next to `qk`.
  const Tensor x = norm.defined() ? qkv.data() : rotated(qkv, heads + kv_heads, head_size, rotary);
  Tensor qk = x, rstd;
  if (norm.defined()) {
    qk = activation({batch, tokens, (heads + kv_heads) * head_size}, x.dtype());
    rstd = activation({batch, tokens, heads + kv_heads}, statistics_dtype(x.dtype()));
    qk_norm_forward(qk, rstd, x, norm.weights.data(), rotary, heads, kv_heads, norm.epsilon,
                    norm.offset);
  }
  const Tensor y = activation({batch, tokens, heads * head_size}, x.dtype());
  const Tensor logsumexp = activation({batch, heads, tokens}, statistics_dtype(x.dtype()));
  const std::shared_ptr<const ContextAxis> axis = context_axis();
  attend_forward(axis, queries(y), logsumexp, queries(qk), keys(qk), values(x), factor, first_key);
  // The norms' backward pass changes the gradients after they have been summed.
  const GradientTotal total = norm.defined() ? nullptr : total_of_gradient(qkv);
  const auto backward = [=](Tensor dy) -> Gradients {
    const Tensor dx = like(x);
    attend_backward(axis, queries(dx), keys(dx), values(dx), queries(dy), queries(qk), keys(qk),
                    values(x), queries(y), logsumexp, factor, first_key,
                    rotary.defined() ? &rotary : nullptr, total.get());
    if (norm.defined()) normalize_backward(dx, x, rstd, norm, heads, kv_heads);
    return {dx};
  };
  return differentiable(y, {std::move(qkv)}, norm.weights.trainable(), backward);
}

Variable attention(const Variable& q, const Variable& k, const Variable& v, std::int64_t heads,
                   std::int64_t kv_heads, const Tensor& first_key) {
  check(q.shape().rank() == 3 && k.shape().rank() == 3 && heads >= 1 && kv_heads >= 1 &&
            q.shape()[2] % heads == 0 && k.shape() == v.shape() &&
            k.shape() == Shape{q.shape()[0], q.shape()[1], q.shape()[2] / heads * kv_heads},
        "attention: q is {}, k is {} and v is {}; expected [B, T, {} D], [B, T, {} D] and the same",
        describe(q.data()), describe(k.data()), describe(v.data()), heads, kv_heads);
  const std::int64_t head_size = q.shape()[2] / heads;
  const float factor = attention_scale(head_size);
  const auto all = [head_size](const Tensor& x) {
    return heads_of(x, 0, x.size(2) / head_size, head_size);
  };

  const Tensor queries = q.data(), keys = k.data(), values = v.data();
  const Tensor y = like(queries);
  const Tensor logsumexp =
      activation({q.shape()[0], heads, q.shape()[1]}, statistics_dtype(q.dtype()));
  const std::shared_ptr<const ContextAxis> axis = context_axis();
  attend_forward(axis, all(y), logsumexp, all(queries), all(keys), all(values), factor, first_key);
  const auto backward = [=](Tensor dy) -> Gradients {
    const Tensor dq = like(queries), dk = like(keys), dv = like(values);
    attend_backward(axis, all(dq), all(dk), all(dv), all(dy), all(queries), all(keys), all(values),
                    all(y), logsumexp, factor, first_key, nullptr);
    return {dq, dk, dv};
  };
  return differentiable(y, {q, k, v}, false, backward);
}

Variable rope(Variable x, std::int64_t heads, std::int64_t head_size, const RopeTable& table,
              const RopePositions& positions) {
  const Tensor y = rotated(x, heads, head_size, {table, positions});
  const auto backward = [heads, head_size, table, positions](Tensor dy) -> Gradients {
    const Tensor dx = own(dy, is_sole_owner(dy));
    rope_backward(heads_of(dx, 0, heads, head_size), table, positions);
    return {dx};
  };
  return differentiable(y, {std::move(x)}, false, backward);
}

}  // namespace tessera
