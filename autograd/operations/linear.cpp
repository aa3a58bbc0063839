// Matrix products: linear layers, feed-forward layers, and embeddings.
#include "autograd/operations.h"

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/deferred_gradients.h"
#include "autograd/engine.h"
#include "autograd/joined_parameters.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "autograd/operations/shared_pieces.h"
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
  return weight.held_shape()[layout == WeightLayout::out_in ? 0 : 1];
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
    const std::int64_t leaves = token_leaves();
    LeafSum of_weight(dweight.window(), dweight.accumulate(), leaves);
    LeafSum of_bias(dbias.window(), dbias.accumulate(), leaves);
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
      const Tensor x_of = rows_of_leaf(x, leaf, leaves), dy_of = rows_of_leaf(dy, leaf, leaves);
      if (weight.trainable()) {
        linear_backward_weight(of_weight.next(), of_bias.next(), x_of, dy_of, transpose,
                               of_weight.accumulate(), of_bias.accumulate());
      } else {
        bias_backward(of_bias.next(), dy_of, of_bias.accumulate());
      }
      of_weight.added();
      of_bias.added();
    }
    dweight.finish();
    dbias.finish();
  });
}

/// Adds to a table's gradient. Leaves that the head has left, where it has the same weight, are added to
/// first: a leaf's gradient is that of both uses.
void embedding_gradient(const Parameter& table, const Tensor& dy, const Tensor& ids,
                        std::optional<std::int64_t> padding_id, const TablePart& part) {
  const std::vector<Tensor> begun = table.take_leaf_gradients();
  const std::int64_t leaves = token_leaves();
  LeafSum sum(table.gradient(), table.next_contribution(), leaves);
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    const Tensor dy_of = rows_of_leaf(dy, leaf, leaves), ids_of = rows_of_leaf(ids, leaf, leaves);
    if (begun.empty()) {
      embedding_backward(sum.next(), dy_of, ids_of, sum.accumulate(), padding_id, part);
      sum.added();
    } else {
      const Tensor& of_leaf = begun[static_cast<std::size_t>(leaf)];
      embedding_backward(of_leaf, dy_of, ids_of, Accumulate::yes, padding_id, part);
      sum.add(of_leaf);
    }
  }
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
    return weight.held_shape()[transpose == Transpose::yes ? 0 : 1];
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

/// y = residual + (x weight + bias), of the rows of x, or this rank's rows of a divided sum.
Tensor product_of_inputs(const SharedAxis& axis, const Tensor& x, const JoinedParameters& weight,
                         Transpose transpose, const JoinedParameters& bias,
                         const Tensor& residual) {
  if (axis != nullptr) {
    return sum_over_inputs(axis, x, weight.data(), transpose, data_of(bias), residual);
  }
  const std::int64_t outputs = weight.held_shape()[transpose == Transpose::yes ? 0 : 1];
  const Tensor y = activation({x.size(0), outputs}, x.dtype());
  linear_forward(y, x, weight.data(), transpose, data_of(bias), residual);
  return y;
}

/// dx = received + dy weight^T, of the rows of dy, or this rank's rows of a divided sum. `received` may be
/// undefined.
Tensor product_of_outputs(const SharedAxis& axis, const Tensor& dy, const JoinedParameters& weight,
                          Transpose transpose, const Tensor& received) {
  if (axis != nullptr) return sum_over_outputs(axis, dy, weight, transpose, received);
  const std::int64_t inputs = weight.held_shape()[transpose == Transpose::yes ? 1 : 0];
  const Tensor dx = activation({dy.size(0), inputs}, dy.dtype());
  if (received.defined()) {  // it is added as a residual is, in the product's pass
    linear_forward(dx, dy, weight.data(), opposite(transpose), {}, received);
  } else {
    linear_backward_input(dx, dy, weight.data(), transpose);
  }
  return dx;
}

Variable mlp(const MlpLayers& layers, const Variable& x, const Variable& residual) {
  const SharedAxis axis = axis_of(layers.fc_weight);
  const Tensor own = as_rows(x.data()), rows = whole_rows(axis, own);
  const std::int64_t N = rows.size(0), outputs = layers.outputs_of(layers.proj_weight);
  const Shape shape = x.shape().with(-1, outputs);
  // `pre` is made even if backward does not need it, so that forward has the same bits.
  const Tensor pre = activation({N, layers.pre_width()}, rows.dtype());
  const Tensor hidden = activation({N, layers.hidden_width()}, rows.dtype());
  layers.hidden_forward(hidden, pre, rows);
  const Tensor y =
      product_of_inputs(axis, hidden, layers.proj_weight, layers.transpose, layers.proj_bias,
                        residual_rows(residual, shape, layers.operation));

  const bool fc_trainable = layers.fc_weight.trainable() || layers.fc_bias.trainable();
  const bool proj_trainable = layers.proj_weight.trainable() || layers.proj_bias.trainable();
  const bool needs_dx = x.requires_gradient(), needs_dpre = needs_dx || fc_trainable;
  return differentiable(
      y.reshape(shape), {x, residual}, fc_trainable || proj_trainable,
      [layers, axis, needs_dx, needs_dpre, adds_residual = residual.defined(), x_shape = x.shape(),
       saved_rows = layers.fc_weight.trainable() ? own : Tensor(),
       saved_pre = needs_dpre ? pre : Tensor(),
       saved_hidden =
           layers.proj_weight.trainable() ? hidden : Tensor()](Tensor dy) mutable -> Gradients {
        const Transpose transpose = layers.transpose;
        Tensor dy_rows = whole_rows(axis, as_rows(dy));
        accumulate_gradients(layers.proj_weight, layers.proj_bias, saved_hidden, dy_rows,
                             transpose);
        if (!needs_dpre) return {Tensor{}, dy};
        const Tensor dpre = layers.pre_gradient(dy_rows, saved_pre, saved_hidden);
        saved_hidden = saved_pre = dy_rows = {};  // as soon as they have been read
        if (!adds_residual) dy = {};
        if (saved_rows.defined()) saved_rows = whole_rows(axis, saved_rows);
        accumulate_gradients(layers.fc_weight, layers.fc_bias, saved_rows, dpre, transpose);
        saved_rows = {};
        if (!needs_dx) return {Tensor{}, dy};
        const Tensor dx = product_of_outputs(axis, dpre, layers.fc_weight, transpose, {});
        return {dx.reshape(x_shape), dy};
      });
}

}  // namespace

namespace {

/// The shape of a linear layer's result [rows, outputs]. All rows of a pass are [B, T, outputs].
Shape shape_of_result(const Variable& x, const SharedAxis& axis, Divided divided,
                      std::int64_t outputs) {
  if (axis == nullptr) return x.shape().with(-1, outputs);
  if (divided != Divided::inputs) return axis->shape_of_rows(outputs);
  return axis->ranks() > 1 && axis->shares_rows() ? Shape{axis->own_rows(), outputs}
                                                  : axis->shape_of_rows(outputs);
}

}  // namespace

Variable linear(const Variable& x, const JoinedParameters& weight, const JoinedParameters& bias,
                WeightLayout layout, const Variable& residual) {
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
  const Tensor own = as_rows(x.data());
  const Shape shape = shape_of_result(x, axis, divided, outputs_of(weight, layout));
  const Tensor y = product_of_inputs(sums_inputs, whole_rows(gathers, own), weight, transpose, bias,
                                     residual_rows(residual, shape, "linear"));

  // Only the weight's gradient needs the input: with a frozen weight it is not kept.
  const Tensor saved = weight.trainable() ? own : Tensor();
  const auto input_gradient = [=, needs_dx = x.requires_gradient(), x_shape = x.shape()](
                                  const Tensor& dy, const Tensor& received) {
    const Tensor dy_rows = whole_rows(sums_inputs, as_rows(dy));
    accumulate_gradients(weight, bias, saved.defined() ? whole_rows(gathers, saved) : saved,
                         dy_rows, transpose);
    if (!needs_dx) return Tensor();
    const Tensor received_rows = received.defined() ? as_rows(received) : received;
    if (axis != nullptr && divided == Divided::nothing) {
      // Every rank has the whole gradient, and adds to its own rows of it.
      const Tensor dx = own_rows(axis, product_of_outputs({}, dy_rows, weight, transpose, {}));
      if (received.defined()) add(dx, dx, received_rows);
      return dx.reshape(x_shape);
    }
    return product_of_outputs(sums_outputs, dy_rows, weight, transpose, received_rows)
        .reshape(x_shape);
  };
  const bool uses_parameters = weight.trainable() || bias.trainable();
  if (!residual.defined()) {
    Variable result = adding_differentiable(y.reshape(shape), x, uses_parameters, input_gradient);
    return divided == Divided::outputs ? whole_pieces(std::move(result), weight) : result;
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

namespace {

/// Rows of a table. Ranks share out its vocabulary, or every rank has all of it.
class Lookup {
 public:
  Lookup(const Tensor& ids, const Parameter& table)
      : ids_(ids.reshape({ids.numel()})), table_(table), axis_(table.tensor_axis()) {
    if (!divides()) return;
    part_ = {.first = axis_->rank() * table.held_shape()[0], .all = table.shape()[0]};
  }

  bool divides() const {
    return axis_ != nullptr && axis_->ranks() > 1 && table_.cut().divided == Divided::vocabulary;
  }

  /// The rows that this rank has of the result.
  Tensor forward() const {
    const std::int64_t channels = table_.shape()[1];
    const DType dtype = table_.data().dtype();
    const Tensor ids = divides() ? ids_ : own_rows(axis_, ids_);
    const Tensor y = activation({ids.numel(), channels}, dtype);
    embedding_forward(y, table_.data(), ids, part_);
    // One rank has a token's row, and the others add zeros: exact in every dtype.
    return divides() ? scatter_sums(axis_, y) : y;
  }

  void backward(const Tensor& dy, std::optional<std::int64_t> padding_id) const {
    embedding_gradient(table_, whole_rows(axis_, dy), ids_, padding_id, part_);
  }

 private:
  Tensor ids_;
  Parameter table_;
  SharedAxis axis_;
  TablePart part_;
};

}  // namespace

Variable embedding(const Tensor& ids, const Parameter& table,
                   std::optional<std::int64_t> padding_id) {
  const Lookup lookup(ids, table);
  const Tensor y = lookup.forward();
  std::vector<std::int64_t> extents(ids.shape().begin(), ids.shape().end());
  extents.push_back(table.shape()[1]);
  const bool all = y.size(0) == ids.numel();
  return differentiable(all ? y.reshape(Shape(extents)) : y, {}, table.trainable(),
                        [lookup, padding_id](Tensor dy) -> Gradients {
                          lookup.backward(as_rows(dy), padding_id);
                          return {};
                        });
}

}  // namespace tessera
