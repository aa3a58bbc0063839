// Matrix products: linear layers and feed-forward layers.
#include "autograd/operations.h"

#include <optional>
#include <utility>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/engine.h"
#include "autograd/fp8.h"
#include "autograd/joined_parameters.h"
#include "autograd/operations/adapter.h"
#include "autograd/operations/divided.h"
#include "autograd/operations/linear_gradients.h"
#include "autograd/operations/shared_pieces.h"
#include "kernels/linear/factor.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

Transpose transposition(WeightLayout layout) {
  return layout == WeightLayout::out_in ? Transpose::yes : Transpose::no;
}
std::int64_t outputs_of(const JoinedParameters& weight, WeightLayout layout) {
  return weight.held_shape()[layout == WeightLayout::out_in ? 0 : 1];
}
Tensor data_of(const JoinedParameters& bias) {
  return bias.defined() ? bias.data() : Tensor();
}

/// The layers of a feed-forward network: gelu lies between them or, if it is gated, swiglu.
struct MlpLayers {
  std::string_view operation;
  JoinedParameters fc_weight, fc_bias, proj_weight, proj_bias;
  Transpose transpose;
  bool gated = false;
  GeluForm gelu = GeluForm::tanh;
  Gate gate = Gate::silu;

  std::int64_t outputs_of(const JoinedParameters& weight) const {
    return weight.held_shape()[transpose == Transpose::yes ? 0 : 1];
  }
  /// The first layer's result, which is saved, and the channels between the layers.
  std::int64_t pre_width() const { return outputs_of(fc_weight); }
  std::int64_t hidden_width() const { return gated ? pre_width() / 2 : pre_width(); }

  void hidden_forward(Out hidden, Out pre, GatheredRows& rows) const {
    const Factor weight = weight_factor(fc_weight, pre.dtype(), transpose);
    const Tensor bias = data_of(fc_bias);
    rows.for_each_range([&](const RowRange& range, const Factor& x) {
      log_product(axis_of(fc_weight), Work::Kind::forward, range.count, weight.numel(),
                  weight.is_fp8());
      const Tensor y = range.of(hidden), pre_of = range.of(pre);
      if (gated) {
        linear_swiglu_forward(y, pre_of, x, weight, transpose, bias, gate);
      } else {
        linear_gelu_forward(y, pre_of, x, weight, transpose, bias, gelu);
      }
    });
  }
  /// The gradient of `pre`, as a factor. In a gated layer it overwrites `pre`, and the gradient of `hidden` overwrites
  /// `hidden`, which may be undefined or in 8 bits. By rank the weight's gradient needs `hidden` later. `sums`, if it
  /// is not null, becomes lines of sums of the gradient's rows, or undefined.
  Factor pre_gradient(GatheredRows& dy, const Tensor& pre, const Factor& hidden,
                      Tensor* sums) const {
    const Factor weight = weight_factor(proj_weight, pre.dtype(), opposite(transpose));
    const Tensor dpre = gated ? reuse(pre) : like(pre);
    const bool overwrites =
        gated && hidden.defined() && !hidden.is_fp8() && !travel_by_rank(axis_of(proj_weight));
    const Tensor dhidden = overwrites ? reuse(hidden.values) : Tensor();
    dy.for_each_range([&](const RowRange& range, const Factor& dy_of) {
      log_product(axis_of(proj_weight), Work::Kind::backward, range.count, weight.numel(),
                  weight.is_fp8());
      const Tensor dpre_of = range.of(dpre), pre_of = range.of(pre);
      if (!gated) {
        linear_backward_input(dpre_of, dy_of, weight, transpose, pre_of, gelu, sums);
        return;
      }
      const Tensor dhidden_of = dhidden.defined()
                                    ? range.of(dhidden)
                                    : activation({range.count, hidden_width()}, pre.dtype());
      swiglu_linear_backward_input(dpre_of, dhidden_of, dy_of, weight, transpose, pre_of, gate);
    });
    return fp8_factor(fc_weight, Fp8Role::gradient, dpre);
  }
};

/// y = residual + (x weight + bias): of rows as they arrive or, along `sums`, this rank's rows of a divided sum.
Tensor product_of_inputs(const SharedAxis& sums, GatheredRows x, const JoinedParameters& weight,
                         Transpose transpose, const JoinedParameters& bias,
                         const Tensor& residual) {
  const DType dtype = product_dtype(x.rows());
  const Tensor bias_data = data_of(bias);
  if (sums != nullptr) {
    return sum_over_inputs(sums, expanded(x.whole()), expanded(weight_factor(weight, dtype)),
                           transpose, bias_data, residual);
  }
  const Factor data = weight_factor(weight, dtype, transpose);
  const std::int64_t outputs = data.size(transpose == Transpose::yes ? 0 : 1);
  const Tensor y = activation({x.rows().size(0), outputs}, dtype);
  x.for_each_range([&](const RowRange& range, const Factor& x_of) {
    log_product(axis_of(weight), Work::Kind::forward, range.count, data.numel(), data.is_fp8());
    linear_forward(range.of(y), x_of, data, transpose, bias_data, range.of(residual));
  });
  return y;
}

/// dx = received + dy weight^T, of rows as they arrive. `received` may be undefined.
Tensor gradients_of_rows(GatheredRows& dy, const JoinedParameters& weight, Transpose transpose,
                         const Tensor& received) {
  const DType dtype = product_dtype(dy.rows());
  const Factor data = weight_factor(weight, dtype, opposite(transpose));
  const std::int64_t inputs = data.size(transpose == Transpose::yes ? 1 : 0);
  const Tensor dx = activation({dy.rows().size(0), inputs}, dtype);
  dy.for_each_range([&](const RowRange& range, const Factor& dy_of) {
    log_product(axis_of(weight), Work::Kind::backward, range.count, data.numel(), data.is_fp8());
    const Tensor dx_of = range.of(dx);
    if (received.defined()) {  // it is added as a residual is, in the product's pass
      linear_forward(dx_of, dy_of, data, opposite(transpose), {}, range.of(received));
    } else {
      linear_backward_input(dx_of, dy_of, data, transpose);
    }
  });
  return dx;
}

/// The sum of dy's rows that came with dy, if there is one and `factor` is dy itself, not rounded.
Tensor take_total(const GradientTotal& total, const Tensor& dy, const Factor& factor) {
  if (total == nullptr) return {};
  const Tensor sum = std::exchange(*total, {});
  return factor.values.raw() == dy.raw() ? sum : Tensor();
}

/// Returns input(), the gradient of an input, and runs weights(), which adds to those of weights. Rows that travel by
/// rank leave and arrive while weights() computes. Else it comes first, because it frees memory.
template <typename Input, typename Weights>
auto with_weights(const SharedAxis& axis, const Input& input, const Weights& weights) {
  const bool meanwhile = travel_by_rank(axis);
  if (!meanwhile) weights();
  auto gradient = input();
  if (meanwhile) weights();
  return gradient;
}

/// dx = received + dy weight^T: of rows as they arrive or, along `sums`, this rank's rows of a divided sum.
/// `received` may be undefined. Runs weights() too.
template <typename Weights>
Tensor product_of_outputs(const SharedAxis& sums, GatheredRows& dy, const JoinedParameters& weight,
                          Transpose transpose, const Tensor& received, const Weights& weights) {
  if (sums == nullptr) {
    const auto whole = [&] { return gradients_of_rows(dy, weight, transpose, received); };
    return with_weights(axis_of(weight), whole, weights);
  }
  const auto begin = [&] { return sum_over_outputs(sums, dy.rows(), weight, transpose); };
  return with_weights(sums, begin, weights).rounded({}, received, product_dtype(dy.rows()));
}

Variable mlp(const MlpLayers& layers, const Variable& x, const Variable& residual) {
  const SharedAxis axis = axis_of(layers.fc_weight);
  const Factor own = fp8_factor(layers.fc_weight, Fp8Role::input, as_rows(x.data()));
  GatheredRows rows(axis, own, layers.fc_weight, Fp8Role::input);
  const std::int64_t N = rows.rows().size(0), outputs = layers.outputs_of(layers.proj_weight);
  const Shape shape = x.shape().with(-1, outputs);
  // `pre` is made even if backward does not need it, so that forward has the same bits.
  const Tensor pre = activation({N, layers.pre_width()}, x.dtype());
  Factor hidden = activation({N, layers.hidden_width()}, x.dtype());
  layers.hidden_forward(hidden.values, pre, rows);
  hidden = fp8_factor(layers.proj_weight, Fp8Role::input, hidden.values);
  const Tensor y =
      product_of_inputs(axis, GatheredRows({}, hidden), layers.proj_weight, layers.transpose,
                        layers.proj_bias, residual_rows(residual, shape, layers.operation));

  const bool fc_trainable = layers.fc_weight.trainable() || layers.fc_bias.trainable();
  const bool proj_trainable = layers.proj_weight.trainable() || layers.proj_bias.trainable();
  const bool needs_dx = x.requires_gradient(), needs_dpre = needs_dx || fc_trainable;
  const GradientTotal total = total_for_bias(layers.proj_bias, y);
  return differentiable(
      y.reshape(shape), {x, residual}, fc_trainable || proj_trainable,
      [layers, axis, total, needs_dx, needs_dpre, adds_residual = residual.defined(),
       x_shape = x.shape(), saved_rows = layers.fc_weight.trainable() ? own.by_columns() : Factor(),
       saved_pre = needs_dpre ? pre : Tensor(),
       saved_hidden = layers.proj_weight.trainable() ? hidden.by_columns()
                                                     : Factor()](Tensor dy) mutable -> Gradients {
        const Transpose transpose = layers.transpose;
        const auto own_dy = [&] {
          return fp8_factor(layers.proj_weight, Fp8Role::gradient, as_rows(dy));
        };
        std::optional<GatheredRows> dy_rows(std::in_place, axis, own_dy(), layers.proj_weight,
                                            Fp8Role::gradient),
            early;
        const auto gather_rows = [&] {
          early.emplace(axis, std::exchange(saved_rows, {}), layers.fc_weight, Fp8Role::input);
        };
        if (travel_by_rank(axis)) gather_rows();
        const Tensor dy_total = take_total(total, dy, dy_rows->rows());
        const auto of_proj = [&] {
          accumulate_gradients(layers.proj_weight, layers.proj_bias, saved_hidden,
                               dy_rows->take_columns(), transpose, dy_total);
        };
        if (!needs_dpre) {
          of_proj();
          return {Tensor{}, dy};
        }
        const GradientTotal fc_total = total_for_bias(layers.fc_bias, saved_pre);
        const auto through_proj = [&] {
          return layers.pre_gradient(*dy_rows, saved_pre, saved_hidden, fc_total.get());
        };
        GatheredRows dpre_rows({}, with_weights(axis, through_proj, of_proj));
        saved_hidden = saved_pre = {};  // as soon as they have been read
        dy_rows.reset();
        if (!adds_residual) dy = {};
        const auto of_fc = [&] {
          if (!early) gather_rows();
          accumulate_gradients(layers.fc_weight, layers.fc_bias, early->take(),
                               dpre_rows.take_columns(), transpose,
                               fc_total == nullptr ? Tensor() : *fc_total);
        };
        if (!needs_dx) {
          of_fc();
          return {Tensor{}, dy};
        }
        const Tensor dx =
            product_of_outputs(axis, dpre_rows, layers.fc_weight, transpose, {}, of_fc);
        return {dx.reshape(x_shape), dy};
      },
      total);
}

/// The shape of a linear layer's result [rows, outputs]. All rows of a pass are [B, T, outputs].
Shape shape_of_result(const Variable& x, const SharedAxis& axis, Divided divided,
                      std::int64_t outputs) {
  if (axis == nullptr) return x.shape().with(-1, outputs);
  if (divided != Divided::inputs) return axis->shape_of_rows(outputs);
  return axis->ranks() > 1 && axis->shares_rows() ? Shape{axis->own_rows(), outputs}
                                                  : axis->shape_of_rows(outputs);
}

/// linear() without adapters, and before copies of pieces are made (shared_pieces.h).
Variable plain_linear(const Variable& x, const JoinedParameters& weight,
                      const JoinedParameters& bias, WeightLayout layout, const Variable& residual) {
  check(layout == WeightLayout::out_in || weight.parts().size() == 1,
        "linear: weights stored as [in, out] have no rows to be joined");
  const Transpose transpose = transposition(layout);
  const SharedAxis axis = axis_of(weight);
  const Divided divided = divided_by(weight);
  // Rows come from all ranks unless they are there, each with the channels that this rank has.
  const SharedAxis gathers = divided == Divided::inputs ? nullptr : axis;
  const SharedAxis sums_inputs = divided == Divided::inputs ? axis : nullptr;
  const SharedAxis sums_outputs =
      divided == Divided::outputs || divided == Divided::vocabulary ? axis : nullptr;
  const Factor own = fp8_factor(weight, Fp8Role::input, as_rows(x.data()));
  const Shape shape = shape_of_result(x, axis, divided, outputs_of(weight, layout));
  const Tensor residuals = residual_rows(residual, shape, "linear");
  const Tensor y =
      product_of_inputs(sums_inputs, GatheredRows(gathers, own, weight, Fp8Role::input), weight,
                        transpose, bias, residuals);

  // Only the weight's gradient needs the input: with a frozen weight it is not kept.
  const Factor saved = weight.trainable() ? own.by_columns() : Factor();
  const GradientTotal total = total_for_bias(bias, y);
  const auto input_gradient = [=, needs_dx = x.requires_gradient(), x_shape = x.shape()](
                                  const Tensor& dy, const Tensor& received) {
    GatheredRows dy_rows(sums_inputs, fp8_factor(weight, Fp8Role::gradient, as_rows(dy)), weight,
                         Fp8Role::gradient);
    GatheredRows x_rows(gathers, saved, weight, Fp8Role::input);
    const Tensor dy_total = take_total(total, dy, dy_rows.rows());
    const auto weights = [&] {
      accumulate_gradients(weight, bias, x_rows.take(), dy_rows.take_columns(), transpose,
                           dy_total);
    };
    if (!needs_dx) {
      weights();
      return Tensor();
    }
    const Tensor received_rows = received.defined() ? as_rows(received) : received;
    if (axis != nullptr && divided == Divided::nothing) {
      // Every rank has the whole gradient, and adds to its own rows of it.
      const Tensor dx =
          own_rows(axis, product_of_outputs({}, dy_rows, weight, transpose, {}, weights));
      if (received.defined()) add(dx, dx, received_rows);
      return dx.reshape(x_shape);
    }
    return product_of_outputs(sums_outputs, dy_rows, weight, transpose, received_rows, weights)
        .reshape(x_shape);
  };
  const bool uses_parameters = weight.trainable() || bias.trainable();
  if (!residual.defined()) {
    return adding_differentiable(y.reshape(shape), x, uses_parameters, input_gradient, total);
  }
  return differentiable(
      y.reshape(shape), {x, residual}, uses_parameters,
      [input_gradient](const Tensor& dy) -> Gradients {
        return {input_gradient(dy, {}), dy};
      },
      total);
}

}  // namespace

Variable linear(const Variable& x, const JoinedParameters& weight, const JoinedParameters& bias,
                WeightLayout layout, const Variable& residual) {
  Variable y = with_adapters(plain_linear(x, weight, bias, layout, residual), x, weight);
  const bool is_cut = divided_by(weight) == Divided::outputs && !residual.defined();
  return is_cut ? whole_pieces(std::move(y), weight) : y;
}

Variable gelu_mlp(const Variable& x, const Parameter& fc_weight, const Parameter& fc_bias,
                  const Parameter& proj_weight, const Parameter& proj_bias, WeightLayout layout,
                  const Variable& residual, GeluForm form) {
  if (is_adapted(fc_weight) || is_adapted(proj_weight)) {
    const Variable hidden = gelu(linear(x, fc_weight, fc_bias, layout), form);
    return linear(hidden, proj_weight, proj_bias, layout, residual);
  }
  return mlp({"gelu_mlp", fc_weight, fc_bias, proj_weight, proj_bias, transposition(layout),
              /*gated=*/false, form},
             x, residual);
}

Variable swiglu_mlp(const Variable& x, const JoinedParameters& gate_up_weight,
                    const JoinedParameters& gate_up_bias, const Parameter& down_weight,
                    const Parameter& down_bias, const Variable& residual, Gate gate) {
  if (is_adapted(gate_up_weight) || is_adapted(down_weight)) {
    const Variable hidden = swiglu(linear(x, gate_up_weight, gate_up_bias), gate);
    return linear(hidden, down_weight, down_bias, WeightLayout::out_in, residual);
  }
  return mlp({.operation = "swiglu_mlp",
              .fc_weight = gate_up_weight,
              .fc_bias = gate_up_bias,
              .proj_weight = down_weight,
              .proj_bias = down_bias,
              .transpose = Transpose::yes,
              .gated = true,
              .gate = gate},
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

}  // namespace tessera
