#include "autograd/operations.h"

#include <cmath>

#include "autograd/activations.h"
#include "autograd/engine.h"
#include "kernels/add/op.h"
#include "kernels/attention/op.h"
#include "kernels/bias/op.h"
#include "kernels/cast/op.h"
#include "kernels/dropout/op.h"
#include "kernels/embedding/op.h"
#include "kernels/gelu/op.h"
#include "kernels/layer_norm/op.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/op.h"
#include "kernels/reduce/op.h"
#include "kernels/rms_norm/op.h"
#include "kernels/scale/op.h"
#include "kernels/swiglu/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// The tensor that dx is written to: dy itself if this handle is its only owner.
Tensor reuse(const Tensor& dy) {
  return is_sole_owner(dy) ? dy : like(dy);
}

Transpose not_(Transpose transpose) {
  return transpose == Transpose::no ? Transpose::yes : Transpose::no;
}

/// A parameter's gradient window, or no tensor if it is frozen.
Tensor wanted_gradient(const Parameter& parameter) {
  return parameter.trainable() ? parameter.gradient() : Tensor();
}

// ---- Linear layers

Transpose transposition(WeightLayout layout) {
  return layout == WeightLayout::out_in ? Transpose::yes : Transpose::no;
}
std::int64_t outputs_of(const Parameter& weight, WeightLayout layout) {
  return weight.shape()[layout == WeightLayout::out_in ? 0 : 1];
}
Tensor data_of(const Parameter& bias) {
  return bias.defined() ? bias.data() : Tensor();
}

/// Adds to the parameters' gradients of a linear layer with input x and result gradient dy. x may be
/// undefined if the weight is frozen.
void accumulate_gradients(const Parameter& weight, const Parameter& bias, const Tensor& x,
                          const Tensor& dy, Transpose transpose) {
  if (weight.trainable()) {
    linear_backward_weight(weight.gradient(), bias.trainable() ? bias.gradient() : Tensor(), x, dy,
                           transpose, weight.next_contribution(),
                           bias.trainable() ? bias.next_contribution() : Accumulate::no);
  } else if (bias.trainable()) {
    bias_backward(bias.gradient(), dy, bias.next_contribution());
  }
}

}  // namespace

Variable linear(const Variable& x, const Parameter& weight, const Parameter& bias,
                WeightLayout layout) {
  const Transpose transpose = transposition(layout);
  const Tensor rows = as_rows(x.data());
  const std::int64_t outputs = outputs_of(weight, layout);
  const Tensor y = activation({rows.size(0), outputs}, rows.dtype());
  linear_forward(y, rows, weight.data(), transpose, data_of(bias));

  // Only the weight's gradient needs the input: with a frozen weight it is not kept.
  const Tensor saved = weight.trainable() ? rows : Tensor();
  return differentiable(y.reshape(x.shape().with(-1, outputs)), {x},
                        weight.trainable() || bias.trainable(),
                        [weight, bias, saved, transpose, needs_dx = x.requires_gradient(),
                         x_shape = x.shape()](Tensor dy) -> Gradients {
                          const Tensor dy_rows = as_rows(dy);
                          accumulate_gradients(weight, bias, saved, dy_rows, transpose);
                          if (!needs_dx) return {Tensor{}};
                          const Tensor dx = activation(x_shape, dy.dtype());
                          linear_backward_input(as_rows(dx), dy_rows, weight.data(), transpose);
                          return {dx};
                        });
}

Variable gelu_mlp(const Variable& x, const Parameter& fc_weight, const Parameter& fc_bias,
                  const Parameter& proj_weight, const Parameter& proj_bias, WeightLayout layout) {
  const Transpose transpose = transposition(layout);
  const Tensor rows = as_rows(x.data());
  const std::int64_t outputs = outputs_of(proj_weight, layout);
  // `pre` is made even if backward does not need it, so that forward has the same bits.
  const Tensor pre = activation({rows.size(0), outputs_of(fc_weight, layout)}, rows.dtype());
  const Tensor hidden = like(pre);
  linear_gelu_forward(hidden, pre, rows, fc_weight.data(), transpose, data_of(fc_bias));
  const Tensor y = activation({rows.size(0), outputs}, rows.dtype());
  linear_forward(y, hidden, proj_weight.data(), transpose, data_of(proj_bias));

  const bool fc_trainable = fc_weight.trainable() || fc_bias.trainable();
  const bool proj_trainable = proj_weight.trainable() || proj_bias.trainable();
  const bool needs_dx = x.requires_gradient(), needs_dpre = needs_dx || fc_trainable;
  return differentiable(
      y.reshape(x.shape().with(-1, outputs)), {x}, fc_trainable || proj_trainable,
      [fc_weight, fc_bias, proj_weight, proj_bias, transpose, needs_dx, needs_dpre,
       x_shape = x.shape(), saved_rows = fc_weight.trainable() ? rows : Tensor(),
       saved_pre = needs_dpre ? pre : Tensor(),
       saved_hidden = proj_weight.trainable() ? hidden : Tensor()](Tensor dy) mutable -> Gradients {
        accumulate_gradients(proj_weight, proj_bias, saved_hidden, as_rows(dy), transpose);
        if (!needs_dpre) return {Tensor{}};
        const Tensor dpre = like(saved_pre);
        linear_backward_input(dpre, as_rows(dy), proj_weight.data(), transpose, saved_pre);
        saved_hidden = saved_pre = dy = {};  // as soon as they have been read
        accumulate_gradients(fc_weight, fc_bias, saved_rows, dpre, transpose);
        if (!needs_dx) return {Tensor{}};
        const Tensor dx = activation(x_shape, dpre.dtype());
        linear_backward_input(as_rows(dx), dpre, fc_weight.data(), transpose);
        return {dx};
      });
}

Variable matmul(const Variable& a, const Variable& b, Transpose transpose_a,
                Transpose transpose_b) {
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const Shape shape = a.shape().with(-2, a.shape()[ta ? -1 : -2]).with(-1, b.shape()[tb ? -2 : -1]);
  const Tensor c = activation(shape, a.dtype());
  matmul(c, a.data(), b.data(), transpose_a, transpose_b);

  // With C = op(A) op(B): d op(A) = dC op(B)^T and d op(B) = op(A)^T dC, transposed back if needed.
  return differentiable(
      c, {a, b}, false,
      [x = a.data(), y = b.data(), transpose_a, transpose_b, ta, tb,
       needs_da = a.requires_gradient(), needs_db = b.requires_gradient()](Tensor dc) -> Gradients {
        Tensor da, db;
        if (needs_da) {
          da = like(x);
          if (ta) {
            matmul(da, y, dc, transpose_b, Transpose::yes);
          } else {
            matmul(da, dc, y, Transpose::no, not_(transpose_b));
          }
        }
        if (needs_db) {
          db = like(y);
          if (tb) {
            matmul(db, dc, x, Transpose::yes, transpose_a);
          } else {
            matmul(db, x, dc, not_(transpose_a), Transpose::no);
          }
        }
        return {da, db};
      });
}

Variable embedding(const Tensor& ids, const Parameter& table) {
  const std::int64_t channels = table.shape()[1];
  const Tensor flat = ids.reshape({ids.numel()});
  std::vector<std::int64_t> extents(ids.shape().begin(), ids.shape().end());
  extents.push_back(channels);
  const Tensor y = activation({ids.numel(), channels}, table.data().dtype());
  embedding_forward(y, table.data(), flat);
  return differentiable(
      y.reshape(Shape(extents)), {}, table.trainable(), [table, flat](Tensor dy) -> Gradients {
        embedding_backward(table.gradient(), as_rows(dy), flat, table.next_contribution());
        return {};
      });
}

// ---- Norms

namespace {

/// The statistics that layer_norm saves of every row.
struct Moments {
  Tensor mean, rstd;
};

/// One number for every row of x.
Tensor row_statistic(const Tensor& x) {
  return activation({as_rows(x).size(0)}, statistics_dtype(x.dtype()));
}

Tensor ones(std::int64_t count, DType dtype) {
  const CategoryScope category(Category::activations);
  const Tensor exact = Tensor::full({count}, statistics_dtype(dtype), 1.0);
  if (exact.dtype() == dtype) return exact;
  const Tensor rounded = activation({count}, dtype);
  cast(rounded, exact);
  return rounded;
}

/// The tensor for the gradient of a norm's input. It is `received`, the sum that it is added to, if
/// this handle is the only owner of that.
Tensor gradient_sum(const Tensor& received, const Tensor& dy) {
  return received.defined() ? reuse(received) : like(dy);
}

/// The node of y = layer_norm(x).
Variable layer_normed(const Tensor& y, const Variable& x, const Parameter& weight,
                      const Parameter& bias, const Moments& moments) {
  return adding_differentiable(
      y, x, weight.trainable() || bias.trainable(),
      [weight, bias, moments, x = x.data()](Tensor dy, Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        Accumulate accumulate = Accumulate::no;
        for (const Parameter& parameter : {weight, bias}) {
          if (parameter.trainable()) accumulate = parameter.next_contribution();
        }
        add_layer_norm_backward(dx, wanted_gradient(weight), wanted_gradient(bias), dy, received, x,
                                weight.data(), moments.mean, moments.rstd, accumulate);
        return dx;
      });
}

/// The node of y = rms_norm(x).
Variable rms_normed(const Tensor& y, const Variable& x, const Parameter& weight,
                    const Tensor& rstd) {
  return adding_differentiable(
      y, x, weight.trainable(), [weight, rstd, x = x.data()](Tensor dy, Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        add_rms_norm_backward(dx, wanted_gradient(weight), dy, received, x, weight.data(), rstd,
                              weight.trainable() ? weight.next_contribution() : Accumulate::no);
        return dx;
      });
}

/// The node of sum = x + branch.
Variable added(const Tensor& sum, const Variable& x, const Variable& branch) {
  return differentiable(sum, {x, branch}, false, [](Tensor dsum) -> Gradients {
    return {dsum, dsum};
  });
}

}  // namespace

Variable layer_norm(const Variable& x, const Parameter& weight, const Parameter& bias,
                    float epsilon) {
  const Tensor y = like(x.data());
  const Moments moments{row_statistic(y), row_statistic(y)};
  layer_norm_forward(y, moments.mean, moments.rstd, x.data(), weight.data(), bias.data(), epsilon);
  return layer_normed(y, x, weight, bias, moments);
}

Variable rms_norm(const Variable& x, const Parameter& weight, float epsilon) {
  const Tensor y = like(x.data());
  const Tensor rstd = row_statistic(y);
  rms_norm_forward(y, rstd, x.data(), weight.data(), epsilon);
  return rms_normed(y, x, weight, rstd);
}

Variable rms_norm(const Variable& x, float epsilon) {
  const Tensor y = like(x.data());
  const Tensor rstd = row_statistic(y);
  // The kernels multiply by a weight; a product with 1 is exact.
  const Tensor weight = ones(x.shape()[-1], x.dtype());
  rms_norm_forward(y, rstd, x.data(), weight, epsilon);
  return adding_differentiable(
      y, x, false, [weight, rstd, x = x.data()](Tensor dy, Tensor received) {
        const Tensor dx = gradient_sum(received, dy);
        add_rms_norm_backward(dx, {}, dy, received, x, weight, rstd, Accumulate::no);
        return dx;
      });
}

SumAndNorm add_layer_norm(const Variable& x, Variable branch, const Parameter& weight,
                          const Parameter& bias, float epsilon) {
  const Tensor sum = branch.is_last() ? branch.data() : like(x.data());
  const Tensor y = like(sum);
  const Moments moments{row_statistic(y), row_statistic(y)};
  add_layer_norm_forward(y, sum, moments.mean, moments.rstd, x.data(), branch.data(), weight.data(),
                         bias.data(), epsilon);
  const Variable total = added(sum, x, branch);
  return {total, layer_normed(y, total, weight, bias, moments)};
}

SumAndNorm add_rms_norm(const Variable& x, Variable branch, const Parameter& weight,
                        float epsilon) {
  const Tensor sum = branch.is_last() ? branch.data() : like(x.data());
  const Tensor y = like(sum);
  const Tensor rstd = row_statistic(y);
  add_rms_norm_forward(y, sum, rstd, x.data(), branch.data(), weight.data(), epsilon);
  const Variable total = added(sum, x, branch);
  return {total, rms_normed(y, total, weight, rstd)};
}

Variable gelu(const Variable& x) {
  const Tensor y = like(x.data());
  gelu_forward(y, x.data());
  return differentiable(y, {x}, false, [x = x.data()](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    gelu_backward(dx, dy, x);
    return {dx};
  });
}

Variable swiglu(const Variable& gate, const Variable& up) {
  const Tensor y = like(gate.data());
  swiglu_forward(as_rows(y), all_columns(as_rows(gate.data())), all_columns(as_rows(up.data())));
  return differentiable(
      y, {gate, up}, false, [g = gate.data(), u = up.data()](Tensor dy) -> Gradients {
        const Tensor dg = reuse(g), du = reuse(u);
        const auto columns = [](const Tensor& x) { return all_columns(as_rows(x)); };
        swiglu_backward(columns(dg), columns(du), as_rows(dy), columns(g), columns(u));
        return {dg, du};
      });
}

Variable swiglu(const Variable& gate_up) {
  const Tensor y = activation(gate_up.shape().with(-1, gate_up.shape()[-1] / 2), gate_up.dtype());
  const Tensor rows = as_rows(gate_up.data());
  swiglu_forward(as_rows(y), first_half(rows), second_half(rows));
  return differentiable(y, {gate_up}, false, [x = gate_up.data()](Tensor dy) -> Gradients {
    const Tensor dx = reuse(x), from = as_rows(x), to = as_rows(dx);
    swiglu_backward(first_half(to), second_half(to), as_rows(dy), first_half(from),
                    second_half(from));
    return {dx};
  });
}

Variable add(const Variable& a, const Variable& b) {
  const Tensor y = like(a.data());
  add(y, a.data(), b.data());
  return added(y, a, b);
}

Variable scale(const Variable& x, double factor) {
  const Tensor y = like(x.data());
  scale(y, x.data(), factor);
  return differentiable(y, {x}, false, [factor](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    scale(dx, dy, factor);
    return {dx};
  });
}

Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = activation(x.shape(), dtype);
  cast(y, x.data());
  return differentiable(y, {x}, false, [from = x.dtype()](Tensor dy) -> Gradients {
    const Tensor dx = activation(dy.shape(), from);
    cast(dx, dy);
    return {dx};
  });
}

Variable reshape(const Variable& x, const Shape& shape) {
  return differentiable(x.data().reshape(shape), {x}, false,
                        [from = x.shape()](Tensor dy) -> Gradients { return {dy.reshape(from)}; });
}

Variable dropout(Variable x, float probability, const RandomStream& random) {
  if (probability == 0.0f) return x;
  const Tensor y = like(x.data());
  dropout(y, x.data(), probability, random);
  return differentiable(y, {x}, false, [probability, random](Tensor dy) -> Gradients {
    const Tensor dx = reuse(dy);
    dropout(dx, dy, probability, random);
    return {dx};
  });
}

namespace {

float attention_scale(std::int64_t head_size) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)));
}

}  // namespace

Variable attention(const Variable& qkv, std::int64_t heads, std::int64_t kv_heads,
                   const Tensor& first_key) {
  check(qkv.shape().rank() == 3 && heads >= 1 && kv_heads >= 1 &&
            qkv.shape()[2] % (heads + 2 * kv_heads) == 0,
        "attention: {} cannot hold {} query heads and {} key and value heads of one size",
        describe(qkv.data()), heads, kv_heads);
  const std::int64_t batch = qkv.shape()[0];
  const std::int64_t tokens = qkv.shape()[1];
  const std::int64_t head_size = qkv.shape()[2] / (heads + 2 * kv_heads);
  const float factor = attention_scale(head_size);
  const auto queries = [heads, head_size](const Tensor& x) {
    return heads_of(x, 0, heads, head_size);
  };
  const auto keys = [heads, kv_heads, head_size](const Tensor& x) {
    return heads_of(x, heads * head_size, kv_heads, head_size);
  };
  const auto values = [heads, kv_heads, head_size](const Tensor& x) {
    return heads_of(x, (heads + kv_heads) * head_size, kv_heads, head_size);
  };

  const Tensor x = qkv.data();
  const Tensor y = activation({batch, tokens, heads * head_size}, qkv.dtype());
  const Tensor logsumexp = activation({batch, heads, tokens}, statistics_dtype(qkv.dtype()));
  attention_forward(queries(y), logsumexp, queries(x), keys(x), values(x), factor, first_key);
  const auto backward = [=](Tensor dy) -> Gradients {
    const Tensor dx = like(x);
    attention_backward(queries(dx), keys(dx), values(dx), queries(dy), queries(x), keys(x),
                       values(x), queries(y), logsumexp, factor, first_key);
    return {dx};
  };
  return differentiable(y, {qkv}, false, backward);
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
  attention_forward(all(y), logsumexp, all(queries), all(keys), all(values), factor, first_key);
  const auto backward = [=](Tensor dy) -> Gradients {
    const Tensor dq = like(queries), dk = like(keys), dv = like(values);
    attention_backward(all(dq), all(dk), all(dv), all(dy), all(queries), all(keys), all(values),
                       all(y), logsumexp, factor, first_key);
    return {dq, dk, dv};
  };
  return differentiable(y, {q, k, v}, false, backward);
}

Variable rope(Variable x, std::int64_t heads, std::int64_t head_size, const RopeTable& table,
              const RopePositions& positions) {
  const auto own = [](const Tensor& tensor, bool in_place) {
    if (in_place) return tensor;
    const CategoryScope category(Category::activations);
    return tensor.clone();
  };
  const Tensor y = own(x.data(), x.is_last());
  rope_forward(heads_of(y, 0, heads, head_size), table, positions);
  const auto backward = [own, heads, head_size, table, positions](Tensor dy) -> Gradients {
    const Tensor dx = own(dy, is_sole_owner(dy));
    rope_backward(heads_of(dx, 0, heads, head_size), table, positions);
    return {dx};
  };
  return differentiable(y, {std::move(x)}, false, backward);
}

Variable cross_entropy(const Variable& logits, const Tensor& targets, int ignore_index) {
  const Tensor x = logits.data();
  const DType dtype = statistics_dtype(x.dtype());
  const Tensor flat = targets.reshape({targets.numel()});
  const Tensor losses = activation({flat.numel()}, dtype);
  const Tensor logsumexp = like(losses);
  cross_entropy_forward(losses, logsumexp, x, flat, ignore_index);
  std::int64_t valid = 0;
  for (const std::int32_t target : flat.to_vector<std::int32_t>()) valid += target != ignore_index;
  const double mean = valid == 0 ? 0.0 : 1.0 / static_cast<double>(valid);
  const Tensor total = activation({1}, dtype);
  sum(total, losses);
  scale(total, total, mean);

  const auto backward = [x, logsumexp, flat, dtype, mean, ignore_index](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses = Tensor::full({flat.numel()}, dtype, mean * scalar_gradient(dy));
    const Tensor dx = like(x);
    cross_entropy_backward(dx, dlosses, x, logsumexp, flat, ignore_index);
    return {dx};
  };
  return differentiable(total, {logits}, false, backward);
}

Variable linear_cross_entropy(const Variable& x, const Parameter& weight, const Tensor& targets,
                              double loss_scale, int ignore_index, std::int64_t chunk) {
  const Tensor rows = as_rows(x.data());
  const Tensor loss = activation({1}, statistics_dtype(x.dtype()));
  const bool recording = gradients_enabled() && (x.requires_gradient() || weight.trainable());
  Tensor dx, dweight;
  Accumulate accumulate = Accumulate::no;
  if (recording && x.requires_gradient()) dx = like(rows);
  if (recording && weight.trainable()) {
    dweight = weight.gradient();
    accumulate = weight.next_contribution();
  }
  linear_cross_entropy(loss, dx, dweight, rows, weight.data(), targets.reshape({targets.numel()}),
                       loss_scale, accumulate, ignore_index, chunk);
  return differentiable(
      loss, {x}, weight.trainable(), [dx, x_shape = x.shape()](Tensor dy) -> Gradients {
        const double seed = scalar_gradient(dy);
        check(seed == 1.0,
              "linear_cross_entropy: backward's seed is {}; expected 1, because the gradients were "
              "computed in forward. Pass the factor as loss_scale and end the graph here",
              seed);
        return {dx.defined() ? dx.reshape(x_shape) : dx};
      });
}

}  // namespace tessera
