#include "autograd/experts.h"

#include <utility>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/expert_parts.h"
#include "autograd/expert_rows.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "kernels/dispatch/op.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/reduce/op.h"
#include "kernels/router_loss/op.h"
#include "kernels/swiglu/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// The stacked linear layers of all experts, with the channels that this rank has of their cut.
struct Layer {
  Parameter weight;
  WeightLayout layout;

  Transpose forward() const {
    return layout == WeightLayout::out_in ? Transpose::yes : Transpose::no;
  }
  Transpose backward() const {
    return layout == WeightLayout::out_in ? Transpose::no : Transpose::yes;
  }
  std::int64_t inputs() const {
    return weight.held_shape()[layout == WeightLayout::out_in ? 2 : 1];
  }
  std::int64_t outputs() const {
    return weight.held_shape()[layout == WeightLayout::out_in ? 1 : 2];
  }

  Tensor operator()(const Tensor& x, const Tensor& offsets) const {
    const Tensor y = activation({x.size(0), outputs()}, x.dtype());
    grouped_matmul(y, x, weight.data(), offsets, forward());
    return y;
  }
  /// The layer's result y [P, 2F], gate and up, and swiglu(y) [P, F].
  std::pair<Tensor, Tensor> gated(const Tensor& x, const Tensor& offsets) const {
    const Tensor y = activation({x.size(0), outputs()}, x.dtype());
    const Tensor h = activation({x.size(0), outputs() / 2}, x.dtype());
    grouped_matmul_swiglu(h, y, x, weight.data(), offsets, forward());
    return {y, h};
  }
  Tensor input_gradient(const Tensor& dy, const Tensor& offsets) const {
    const Tensor dx = activation({dy.size(0), inputs()}, dy.dtype());
    grouped_matmul(dx, dy, weight.data(), offsets, backward());
    return dx;
  }

  // Where ranks divide the sum, a part of it in f32 (f64).
  const SharedAxis& axis() const { return weight.tensor_axis(); }
  std::int64_t parts() const { return axis()->own_parts(); }
  Tensor part(const Tensor& x, const Tensor& offsets, std::int64_t i) const {
    const Tensor y = activation({x.size(0), outputs()}, statistics_dtype(x.dtype()));
    grouped_matmul_part(y, x, weight.data(), offsets, forward(),
                        depths_of_part(inputs(), 1, i, parts()));
    return y;
  }
  Tensor input_gradient_part(const Tensor& dy, const Tensor& offsets, std::int64_t i) const {
    const Tensor dx = activation({dy.size(0), inputs()}, statistics_dtype(dy.dtype()));
    grouped_matmul_part(dx, dy, weight.data(), offsets, backward(),
                        depths_of_part(outputs(), weight.cut().groups, i, parts()));
    return dx;
  }
};

/// The gradient of a layer's weight, from the leaves of this rank's tokens. There is one for each source:
/// their sum over ranks is formed later, in the tree of all sums.
class LayerGradient {
 public:
  LayerGradient(Layer layer, std::int64_t leaves) : layer_(std::move(layer)) {
    if (!layer_.weight.trainable()) return;
    const Accumulate accumulate = layer_.weight.next_contribution();
    for (const Tensor& window : layer_.weight.gradients()) {
      sums_.emplace_back(window, accumulate, leaves);
    }
  }

  /// Adds that of one leaf's rows.
  void add(const Tensor& x, const Tensor& dy, const ExpertRows& at) {
    const bool out_in = layer_.layout == WeightLayout::out_in;
    for (int s = 0; s < at.sources(); ++s) {
      LeafSum& sum = sums_[static_cast<std::size_t>(s)];
      const Tensor x_of = at.of_source(x, s), dy_of = at.of_source(dy, s);
      grouped_matmul_weight(sum.next(), out_in ? dy_of : x_of, out_in ? x_of : dy_of,
                            at.offsets_of(s), sum.accumulate());
      sum.added();
    }
  }

 private:
  Layer layer_;
  std::vector<LeafSum> sums_;
};

/// The gradients of both layers' weights.
struct LayerGradients {
  LayerGradient gate_up, down;
};

/// The tensors and choices of one call, for one leaf of this rank's tokens.
struct Call {
  Layer gate_up, down;
  WeighedInput weighed;
  Tensor weights, places;
  ExpertRows at;
  /// WeighedInput::down: the weights of the rows at the experts, and the rows' places there.
  Tensor weights_there, places_there;

  bool weighs(WeighedInput input) const { return weighed == input; }
  /// Whether tensor ranks may divide sums over the channels inside experts.
  bool divides() const { return down.axis() != nullptr; }

  /// The rows that gate_up multiplies, before they travel.
  Tensor dispatched(const Tensor& rows) const {
    const Tensor y = activation({places.numel(), rows.size(1)}, rows.dtype());
    dispatch(y, rows, places, weighs(WeighedInput::gate_up) ? weights : Tensor());
    return y;
  }

  void send_weights() {
    if (!weighs(WeighedInput::down)) return;
    weights_there = weights, places_there = places;
    if (!at.travel()) return;
    const Tensor of_rows = activation({places.numel(), 1}, weights.dtype());
    dispatch(of_rows, weights.reshape(of_rows.shape()), slot_places());
    weights_there = at.to_experts(of_rows), places_there = at.places();
  }
  /// From the rows' weights at the experts, or their gradients, to the tokens' [N, k].
  Tensor weights_of_tokens(const Tensor& there) const {
    if (!at.travel()) return there;
    const Tensor of_slots = activation({places.numel(), 1}, there.dtype());
    combine(of_slots, at.to_tokens(there), slot_places());
    return of_slots.reshape(places.shape());
  }

  /// The places of the slots as tokens with one expert each.
  Tensor slot_places() const { return places.reshape({places.numel(), 1}); }
};

/// The gradients of one call, with respect to the rows and the weights. Where ranks divide the sums they are
/// this rank's parts of them.
class Backward {
 public:
  /// `received`: the rows that have travelled to the experts here; undefined if none travel.
  Backward(Call call, Tensor received, Tensor gate_up)
      : call_(std::move(call)), received_(std::move(received)), gate_up_(std::move(gate_up)) {}

  /// Does it read the tokens' rows?
  bool needs_rows() const { return !received_.defined() || call_.weighs(WeighedInput::gate_up); }

  /// Returns {dx, dweights}. Each tensor is released as soon as it has been read.
  Gradients operator()(Tensor rows, const Tensor& dy, bool wants_dx, bool wants_dweights,
                       LayerGradients& sums) {
    rows_ = std::move(rows);
    tokens_ = dy.shape();
    through_down(dy, sums.down);
    if (!wants_dx && !wants_dweights && !call_.gate_up.weight.trainable()) return {{}, {}};
    const Tensor dx = through_gate_up(wants_dx, wants_dweights, sums.gate_up);
    return {dx, wants_dweights ? dweights_ : Tensor()};
  }

 private:
  /// Adds to down's gradient. gate_up_ becomes its own gradient.
  void through_down(const Tensor& dy, LayerGradient& sum) {
    Tensor dispatched_dy = activation({call_.places.numel(), dy.size(1)}, dy.dtype());
    dispatch(dispatched_dy, dy, call_.places);
    dispatched_dy = call_.at.to_experts(dispatched_dy);
    // The gradient of down's rows, and then these rows once more.
    const Tensor h = call_.down.input_gradient(dispatched_dy, call_.at.offsets());
    const bool weighed = call_.weighs(WeighedInput::down);
    if (weighed) dweights_ = weights_gradient(call_.weights_there);
    const Columns gate = first_half(gate_up_), up = second_half(gate_up_);
    weighed_swiglu_backward(h, dweights_, gate, up, h, gate, up, call_.places_there,
                            call_.weights_there);
    if (weighed && call_.divides()) dweights_ = sum_of_parts(dweights_);
    if (weighed) dweights_ = call_.weights_of_tokens(dweights_);
    if (call_.down.weight.trainable()) sum.add(h, dispatched_dy, call_.at);
  }

  /// Adds to gate_up's gradient; gate_up_ holds the gradient of its result. Returns dx.
  Tensor through_gate_up(bool wants_dx, bool wants_dweights, LayerGradient& sum) {
    if (call_.gate_up.weight.trainable()) {
      const Tensor x = received_.defined() ? received_ : call_.dispatched(rows_);
      received_ = {};
      sum.add(x, gate_up_, call_.at);
    }
    const bool weighed = call_.weighs(WeighedInput::gate_up);
    if (!wants_dx && !(weighed && wants_dweights)) return {};
    if (call_.divides()) return divided_input_gradient();
    Tensor drows = call_.gate_up.input_gradient(gate_up_, call_.at.offsets());
    gate_up_ = {};
    drows = call_.at.to_tokens(drows);
    if (weighed) {
      const Tensor x = like(drows);
      dispatch(x, rows_, call_.places);
      dweights_ = like(call_.weights);
      weigh_backward(drows, dweights_, drows, x, call_.places, call_.weights);
    }
    if (!wants_dx) return {};
    const Tensor dx = activation(tokens_, drows.dtype());
    combine(dx, drows, call_.places);
    return dx;
  }

  /// dx of this rank's parts and, for WeighedInput::gate_up, dweights.
  Tensor divided_input_gradient() {
    const DType dtype = statistics_dtype(gate_up_.dtype());
    const Tensor dx = activation(tokens_, dtype);
    const auto rows = [&](std::int64_t part) {
      return call_.at.to_tokens(
          call_.gate_up.input_gradient_part(gate_up_, call_.at.offsets(), part));
    };
    const std::int64_t parts = call_.gate_up.parts();
    if (call_.weighs(WeighedInput::down)) {
      combine_parts(dx, parts, rows, call_.places, {});
    } else {
      dweights_ = activation(call_.weights.shape(), dtype);
      weigh_parts(dx, dweights_, parts, rows, rows_, call_.places, call_.weights);
    }
    gate_up_ = {};
    return dx;
  }

  /// Memory for the gradient of these weights: a sum or, where ranks divide it, one for each part.
  Tensor weights_gradient(const Tensor& weights) const {
    if (!call_.divides()) return like(weights);
    return activation({call_.down.parts(), weights.size(0), weights.size(1)},
                      statistics_dtype(weights.dtype()));
  }

  Call call_;
  Shape tokens_;
  Tensor rows_, received_, gate_up_, dweights_;
};

void check_layers(const Variable& x, const Layer& up, const Layer& down, std::int64_t E) {
  const std::int64_t C = x.shape()[-1];
  const Shape &a = up.weight.shape(), &b = down.weight.shape();
  check(a.rank() == 3 && b.rank() == 3 && a[0] == E && b[0] == E && up.inputs() == C &&
            down.outputs() == C && up.outputs() == 2 * down.inputs(),
        "experts: x is {}, gate_up {} and down {} for {} experts; as [in, out] of each expert they "
        "must be [C, 2 F] and [F, C]",
        describe(x.data()), to_string(a), to_string(b), E);
  check(up.weight.exchange() == down.weight.exchange(),
        "experts: '{}' and '{}' are shared out over different ranks", up.weight.name(),
        down.weight.name());
}

/// Where the rows of a leaf's tokens are dispatched to, among those of the leaf.
struct Routed {
  Tensor places, offsets;
};

Routed routed_leaf(const Routing& routing, std::int64_t leaf, std::int64_t leaves) {
  if (leaves == 1) return {routing.places, routing.offsets};
  const Tensor experts = rows_of_leaf(routing.experts, leaf, leaves);
  const Routed routed{activation(experts.shape(), DType::i32),
                      activation(routing.offsets.shape(), DType::i32)};
  dispatch_order(routed.places, routed.offsets, experts);
  return routed;
}

/// Writes y [N, C] for a leaf's rows [N, C] or, where ranks divide the sum, this rank's parts of it, without the
/// residual. Returns the way back.
Backward forward_leaf(Call call, const Tensor& rows, const Tensor& y, const Tensor& residual) {
  call.send_weights();
  Tensor at_experts = call.at.to_experts(call.dispatched(rows));
  auto [pre, h] = call.gate_up.gated(at_experts, call.at.offsets());
  // Backward makes them again where they need not travel.
  if (!call.at.travel() || !call.gate_up.weight.trainable()) at_experts = {};
  if (call.divides()) {
    const bool weighed = call.weighs(WeighedInput::down);
    combine_parts(
        y, call.down.parts(),
        [&, &hidden = h](std::int64_t part) {
          return call.at.to_tokens(call.down.part(hidden, call.at.offsets(), part));
        },
        call.places, weighed ? call.weights : Tensor());
    return Backward(std::move(call), std::move(at_experts), std::move(pre));
  }
  Tensor results = call.down(h, call.at.offsets());
  h = {};
  results = call.at.to_tokens(results);
  combine(y, results, call.places, call.weighs(WeighedInput::down) ? call.weights : Tensor(),
          residual);
  return Backward(std::move(call), std::move(at_experts), std::move(pre));
}

/// The sum over ranks of x, f32 (f64), in `dtype`. A collective.
Tensor whole_sum(const SharedAxis& axis, const Tensor& x, DType dtype) {
  sum_over_ranks(axis, x);
  if (x.dtype() == dtype) return x;
  const Tensor sum = activation(x.shape(), dtype);
  cast(sum, x);
  return sum;
}

/// The leaves' rows one after another.
class JoinedLeaves {
 public:
  explicit JoinedLeaves(std::int64_t leaves) : leaves_(leaves) {}

  /// Undefined if nothing is wanted of any leaf.
  void add(const Tensor& rows) {
    if (leaves_ == 1 || !rows.defined()) {
      joined_ = rows;
      return;
    }
    const std::int64_t count = rows.size(0);
    if (!joined_.defined()) {
      joined_ = activation(rows.shape().with(0, leaves_ * count), rows.dtype());
    }
    joined_.slice(added_ * count, (added_ + 1) * count).copy_from(rows);
    ++added_;
  }
  const Tensor& joined() const { return joined_; }

 private:
  std::int64_t leaves_, added_ = 0;
  Tensor joined_;
};

}  // namespace

Routing route(const Variable& logits, const RouterOptions& options) {
  const Tensor rows = as_rows(logits.data());
  const Shape shape{rows.size(0), options.experts_per_token};
  const Tensor weights = activation(shape, rows.dtype());
  const Tensor experts = activation(shape, DType::i32), places = activation(shape, DType::i32);
  const Tensor offsets = activation({rows.size(1) + 1}, DType::i32);
  router_forward(weights, experts, rows, options.bias, options.weights);
  dispatch_order(places, offsets, experts);
  const auto backward = [rows, experts, kind = options.weights,
                         shape = logits.shape()](Tensor dweights) -> Gradients {
    const Tensor dlogits = like(rows);
    router_backward(dlogits, dweights, rows, experts, kind);
    return {dlogits.reshape(shape)};
  };
  return {differentiable(weights, {logits}, false, backward), experts, places, offsets};
}

Variable experts(const Variable& x, const Routing& routing, const Parameter& gate_up,
                 const Parameter& down, const ExpertOptions& options, const Variable& residual) {
  const Layer first{gate_up, options.layout}, second{down, options.layout};
  check_layers(x, first, second, routing.offsets.numel() - 1);
  const std::int64_t leaves = token_leaves();
  const SharedAxis axis = gate_up.tensor_axis();
  const Tensor own = as_rows(x.data()), rows = whole_rows(axis, own);
  const Tensor residuals = residual_rows(residual, x.shape(), "experts");
  const Tensor results =
      axis == nullptr ? like(own) : activation(rows.shape(), statistics_dtype(rows.dtype()));
  std::vector<Backward> backwards;
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    const auto of = [&](const Tensor& all) { return rows_of_leaf(all, leaf, leaves); };
    const Routed routed = routed_leaf(routing, leaf, leaves);
    Call call{.gate_up = first,
              .down = second,
              .weighed = options.weighed,
              .weights = of(routing.weights.data()),
              .places = routed.places,
              .at = ExpertRows(routed.offsets, routed.places, gate_up.exchange()),
              .weights_there = {},
              .places_there = {}};
    backwards.push_back(forward_leaf(std::move(call), of(rows), of(results),
                                     axis == nullptr ? of(residuals) : Tensor()));
  }
  const Tensor y =
      axis == nullptr ? results : scatter_rounded(axis, results, {}, residuals, rows.dtype());
  return differentiable(
      y.reshape(x.shape()), {x, routing.weights, residual}, gate_up.trainable() || down.trainable(),
      [backwards = std::move(backwards), own, axis, first, second, needs_dx = x.requires_gradient(),
       needs_dw = routing.weights.requires_gradient(),
       shape = x.shape()](const Tensor& dy) mutable -> Gradients {
        const auto count = static_cast<std::int64_t>(backwards.size());
        const Tensor dy_rows = whole_rows(axis, as_rows(dy));
        const bool needs_rows = backwards.front().needs_rows();
        const Tensor rows = needs_rows ? whole_rows(axis, own) : Tensor();
        LayerGradients sums{{first, count}, {second, count}};
        JoinedLeaves dx(count), dweights(count);
        for (std::int64_t leaf = 0; leaf < count; ++leaf) {
          Backward backward = std::move(backwards[static_cast<std::size_t>(leaf)]);
          const Gradients of_leaf =
              backward(rows_of_leaf(rows, leaf, count), rows_of_leaf(dy_rows, leaf, count),
                       needs_dx, needs_dw, sums);
          dx.add(of_leaf[0]);
          dweights.add(of_leaf[1]);
        }
        if (axis == nullptr) {
          return {needs_dx ? dx.joined().reshape(shape) : Tensor(), dweights.joined(), dy};
        }
        const DType dtype = dy.dtype();
        return {
            needs_dx ? scatter_rounded(axis, dx.joined(), {}, {}, dtype).reshape(shape) : Tensor(),
            needs_dw ? whole_sum(axis, dweights.joined(), dtype) : Tensor(), dy};
      });
}

Variable router_loss(const Variable& logits, const Tensor& factors, double z) {
  const Tensor rows = as_rows(logits.data());
  const DType dtype = statistics_dtype(rows.dtype());
  const Tensor losses = activation({rows.size(0)}, dtype), total = activation({1}, dtype);
  router_loss_forward(losses, rows, factors, z);
  sum(total, losses);
  const auto backward = [rows, factors, z, dtype, shape = logits.shape()](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses = Tensor::full({rows.size(0)}, dtype, scalar_gradient(dy));
    const Tensor dlogits = like(rows);
    router_loss_backward(dlogits, dlosses, rows, factors, z);
    return {dlogits.reshape(shape)};
  };
  return differentiable(total, {logits}, false, backward);
}

Variable add_router_loss(const Variable& logits, std::shared_ptr<const RouterLossTerms> terms) {
  const Tensor rows = as_rows(logits.data());
  const auto backward = [rows, terms = std::move(terms),
                         shape = logits.shape()](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses =
        Tensor::full({rows.size(0)}, statistics_dtype(rows.dtype()), terms->scale);
    const Tensor dlogits = like(rows);
    router_loss_backward(dlogits, dlosses, rows, terms->factors, terms->z);
    add(dlogits, dlogits, dy.reshape(rows.shape()));
    return {dlogits.reshape(shape)};
  };
  return differentiable(logits.data(), {logits}, false, backward);
}

}  // namespace tessera
