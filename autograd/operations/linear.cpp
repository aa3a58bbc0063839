// Matrix products: linear layers, feed-forward layers, and embeddings.
#include "autograd/operations.h"

#include "autograd/activations.h"
#include "autograd/deferred_gradients.h"
#include "autograd/engine.h"
#include "autograd/joined_parameters.h"
#include "kernels/bias/op.h"
#include "kernels/embedding/op.h"
#include "kernels/linear/op.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

Transpose transposition(WeightLayout layout) {
  return layout == WeightLayout::out_in ? Transpose::yes : Transpose::no;
}
std::int64_t outputs_of(const JoinedParameters& weight, WeightLayout layout) {
  return weight.shape()[layout == WeightLayout::out_in ? 0 : 1];
}
Tensor data_of(const JoinedParameters& bias) {
  return bias.defined() ? bias.data() : Tensor();
}

/// Adds to the parameters' gradients of a linear layer with input x and result gradient dy, or defers that.
/// x may be undefined if the weight is frozen.
void accumulate_gradients(const JoinedParameters& weight, const JoinedParameters& bias,
                          const Tensor& x, const Tensor& dy, Transpose transpose) {
  if (!weight.trainable() && !bias.trainable()) return;
  run_or_defer([weight, bias, x, dy, transpose] {
    const JoinedGradient dweight(weight), dbias(bias);
    if (weight.trainable()) {
      linear_backward_weight(dweight.window(), dbias.window(), x, dy, transpose,
                             dweight.accumulate(), dbias.accumulate());
    } else {
      bias_backward(dbias.window(), dy, dbias.accumulate());
    }
    dweight.finish();
    dbias.finish();
  });
}

/// The layers of a feed-forward network: gelu lies between them or, if it is gated, swiglu.
struct MlpLayers {
  std::string_view operation;
  JoinedParameters fc_weight, fc_bias;
  Parameter proj_weight, proj_bias;
  Transpose transpose;
  bool gated = false;
  GeluForm gelu = GeluForm::tanh;

  std::int64_t outputs_of(const JoinedParameters& weight) const {
    return weight.shape()[transpose == Transpose::yes ? 0 : 1];
  }
  /// The first layer's result, which is saved, and the channels between the layers.
  std::int64_t pre_width() const { return outputs_of(fc_weight); }
  std::int64_t hidden_width() const { return gated ? pre_width() / 2 : pre_width(); }

  void hidden_forward(Out hidden, Out pre, const Tensor& rows) const {
    if (gated) {
      linear_swiglu_forward(hidden, pre, rows, fc_weight.data(), transpose, data_of(fc_bias));
    } else {
      linear_gelu_forward(hidden, pre, rows, fc_weight.data(), transpose, data_of(fc_bias), gelu);
    }
  }
  /// The gradient of `pre`. In a gated layer it overwrites `pre`, and the gradient of `hidden`
  /// overwrites `hidden`.
  Tensor pre_gradient(const Tensor& dy, const Tensor& pre, const Tensor& hidden) const {
    if (!gated) {
      const Tensor dpre = like(pre);
      linear_backward_input(dpre, dy, proj_weight.data(), transpose, pre, gelu);
      return dpre;
    }
    const Tensor dpre = reuse(pre);
    const Tensor dhidden =
        hidden.defined() ? reuse(hidden) : activation({dy.size(0), hidden_width()}, dy.dtype());
    swiglu_linear_backward_input(dpre, dhidden, dy, proj_weight.data(), transpose, pre);
    return dpre;
  }
};

Variable mlp(const MlpLayers& layers, const Variable& x, const Variable& residual) {
  const Tensor rows = as_rows(x.data());
  const std::int64_t N = rows.size(0), outputs = layers.outputs_of(layers.proj_weight);
  const Shape shape = x.shape().with(-1, outputs);
  // `pre` is made even if backward does not need it, so that forward has the same bits.
  const Tensor pre = activation({N, layers.pre_width()}, rows.dtype());
  const Tensor hidden = activation({N, layers.hidden_width()}, rows.dtype());
  layers.hidden_forward(hidden, pre, rows);
  const Tensor y = activation({N, outputs}, rows.dtype());
  linear_forward(y, hidden, layers.proj_weight.data(), layers.transpose, data_of(layers.proj_bias),
                 residual_rows(residual, shape, layers.operation));

  const bool fc_trainable = layers.fc_weight.trainable() || layers.fc_bias.trainable();
  const bool proj_trainable = layers.proj_weight.trainable() || layers.proj_bias.trainable();
  const bool needs_dx = x.requires_gradient(), needs_dpre = needs_dx || fc_trainable;
  return differentiable(
      y.reshape(shape), {x, residual}, fc_trainable || proj_trainable,
      [layers, needs_dx, needs_dpre, adds_residual = residual.defined(), x_shape = x.shape(),
       saved_rows = layers.fc_weight.trainable() ? rows : Tensor(),
       saved_pre = needs_dpre ? pre : Tensor(),
       saved_hidden =
           layers.proj_weight.trainable() ? hidden : Tensor()](Tensor dy) mutable -> Gradients {
        const Transpose transpose = layers.transpose;
        accumulate_gradients(layers.proj_weight, layers.proj_bias, saved_hidden, as_rows(dy),
                             transpose);
        if (!needs_dpre) return {Tensor{}, dy};
        const Tensor dpre = layers.pre_gradient(as_rows(dy), saved_pre, saved_hidden);
        saved_hidden = saved_pre = {};  // as soon as they have been read
        if (!adds_residual) dy = {};
        accumulate_gradients(layers.fc_weight, layers.fc_bias, saved_rows, dpre, transpose);
        if (!needs_dx) return {Tensor{}, dy};
        const Tensor dx = activation(x_shape, dpre.dtype());
        linear_backward_input(as_rows(dx), dpre, layers.fc_weight.data(), transpose);
        return {dx, dy};
      });
}

}  // namespace

Variable linear(const Variable& x, const JoinedParameters& weight, const JoinedParameters& bias,
                WeightLayout layout, const Variable& residual) {
  check(layout == WeightLayout::out_in || weight.parts().size() == 1,
        "linear: weights stored as [in, out] have no rows to be joined");
  const Transpose transpose = transposition(layout);
  const Tensor rows = as_rows(x.data());
  const std::int64_t outputs = outputs_of(weight, layout);
  const Shape shape = x.shape().with(-1, outputs);
  const Tensor y = activation({rows.size(0), outputs}, rows.dtype());
  linear_forward(y, rows, weight.data(), transpose, data_of(bias),
                 residual_rows(residual, shape, "linear"));

  // Only the weight's gradient needs the input: with a frozen weight it is not kept.
  const Tensor saved = weight.trainable() ? rows : Tensor();
  const auto input_gradient = [weight, bias, saved, transpose, needs_dx = x.requires_gradient(),
                               x_shape = x.shape()](const Tensor& dy, const Tensor& received) {
    const Tensor dy_rows = as_rows(dy);
    accumulate_gradients(weight, bias, saved, dy_rows, transpose);
    if (!needs_dx) return Tensor();
    const Tensor dx = activation(x_shape, dy.dtype());
    if (received.defined()) {  // it is added as a residual is, in the product's pass
      linear_forward(as_rows(dx), dy_rows, weight.data(), opposite(transpose), {},
                     as_rows(received));
    } else {
      linear_backward_input(as_rows(dx), dy_rows, weight.data(), transpose);
    }
    return dx;
  };
  const bool uses_parameters = weight.trainable() || bias.trainable();
  if (!residual.defined()) {
    return adding_differentiable(y.reshape(shape), x, uses_parameters, input_gradient);
  }
  return differentiable(y.reshape(shape), {x, residual}, uses_parameters,
                        [input_gradient](const Tensor& dy) -> Gradients {
                          return {input_gradient(dy, {}), dy};
                        });
}

Variable gelu_mlp(const Variable& x, const Parameter& fc_weight, const Parameter& fc_bias,
                  const Parameter& proj_weight, const Parameter& proj_bias, WeightLayout layout,
                  const Variable& residual, GeluForm form) {
  return mlp({"gelu_mlp", fc_weight, fc_bias, proj_weight, proj_bias, transposition(layout),
              /*gated=*/false, form},
             x, residual);
}

Variable swiglu_mlp(const Variable& x, const JoinedParameters& gate_up_weight,
                    const JoinedParameters& gate_up_bias, const Parameter& down_weight,
                    const Parameter& down_bias, const Variable& residual) {
  return mlp({"swiglu_mlp", gate_up_weight, gate_up_bias, down_weight, down_bias, Transpose::yes,
              /*gated=*/true},
             x, residual);
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
            matmul(da, dc, y, Transpose::no, opposite(transpose_b));
          }
        }
        if (needs_db) {
          db = like(y);
          if (tb) {
            matmul(db, dc, x, Transpose::yes, transpose_a);
          } else {
            matmul(db, x, dc, opposite(transpose_a), Transpose::no);
          }
        }
        return {da, db};
      });
}

Variable embedding(const Tensor& ids, const Parameter& table,
                   std::optional<std::int64_t> padding_id) {
  const std::int64_t channels = table.shape()[1];
  const Tensor flat = ids.reshape({ids.numel()});
  std::vector<std::int64_t> extents(ids.shape().begin(), ids.shape().end());
  extents.push_back(channels);
  const Tensor y = activation({ids.numel(), channels}, table.data().dtype());
  embedding_forward(y, table.data(), flat);
  return differentiable(y.reshape(Shape(extents)), {}, table.trainable(),
                        [table, flat, padding_id](Tensor dy) -> Gradients {
                          embedding_backward(table.gradient(), as_rows(dy), flat,
                                             table.next_contribution(), padding_id);
                          return {};
                        });
}

}  // namespace tessera
