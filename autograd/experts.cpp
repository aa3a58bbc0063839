#include "autograd/experts.h"

#include <tuple>
#include <utility>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/expert_layer.h"
#include "autograd/expert_parts.h"
#include "autograd/expert_rows.h"
#include "autograd/fp8.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "autograd/token_pieces.h"
#include "kernels/dispatch/op.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// The gradients of both layers' weights.
struct LayerGradients {
  ExpertLayerGradient gate_up, down;
};

/// The tensors and choices of one call, for one piece of this rank's tokens.
struct Call {
  ExpertLayer gate_up, down;
  WeighedInput weighed;
  Tensor weights, places;
  ExpertRows at;
  /// WeighedInput::down: the weights of the rows at the experts, and the rows' places there.
  Tensor weights_there = {}, places_there = {};

  bool weighs(WeighedInput input) const { return weighed == input; }
  /// Whether tensor ranks may divide sums over the channels inside experts.
  bool divides() const { return down.axis() != nullptr; }

  /// The rows of tokens that the layer multiplies, on their way to its experts. They are times `weights`, if these
  /// are defined. They stay where they are if its products gather them.
  Journey send(const ExpertLayer& layer, const Tensor& tokens, const Tensor& weights) const {
    const bool gathered = !at.travel() && !weights.defined() && at.slots().defined() &&
                          gathers_rows(tokens) && !multiplies_in_fp8(layer.weight);
    if (gathered) return {.rows = tokens, .of_tokens = true};
    return at.tokens_to_experts(tokens, weights);
  }
  Journey send_inputs(const Tensor& tokens) const {
    return send(gate_up, tokens, weighs(WeighedInput::gate_up) ? weights : Tensor());
  }

  /// The same at the experts.
  RoutedRows at_experts(const ExpertLayer& layer, Fp8Role role, Journey journey) const {
    if (journey.of_tokens) return {journey.rows, places, at.slots()};
    return fp8_factor(layer.weight, role, at.at_experts(std::move(journey)));
  }
  RoutedRows inputs(Journey journey) const {
    return at_experts(gate_up, Fp8Role::input, std::move(journey));
  }

  /// Where the experts need them.
  Journey send_weights() const {
    if (!weighs(WeighedInput::down) || !at.travel()) return {weights};
    const Tensor of_rows = activation({places.numel(), 1}, weights.dtype());
    dispatch(of_rows, weights.reshape(of_rows.shape()), slot_places());
    return at.to_experts(of_rows);
  }
  void weights_arrived(Journey journey) {
    if (!weighs(WeighedInput::down)) return;
    weights_there = at.arrived(std::move(journey));
    places_there = at.travel() ? at.places() : places;
  }
  /// From the weights' gradients that have come back to those of the tokens' weights [N, k].
  Tensor weights_of_tokens(Journey journey) const {
    const Tensor back = at.arrived(std::move(journey));
    if (!at.travel()) return back;
    const Tensor of_slots = activation({places.numel(), 1}, back.dtype());
    combine(of_slots, back, slot_places());
    return of_slots.reshape(places.shape());
  }

  /// Rows by group at the experts, back at their tokens. A collective.
  Tensor at_tokens(const Tensor& rows) const {
    return at.arrived(at.to_tokens(at.by_arrival(rows)));
  }

  /// The places of the slots as tokens with one expert each.
  Tensor slot_places() const { return places.reshape({places.numel(), 1}); }
};

/// The gradients of one piece, with respect to the rows and the weights. Where ranks divide the sums they are
/// this rank's parts of them. Each tensor is released as soon as it has been read.
class Backward {
 public:
  /// `received`: the rows that have travelled to the experts here; undefined if none travel.
  Backward(Call call, RoutedRows received, Tensor gate_up)
      : call_(std::move(call)), received_(std::move(received)), gate_up_(std::move(gate_up)) {}

  /// Does it read the tokens' rows?
  bool needs_rows() const {
    return !received_.values.defined() || call_.weighs(WeighedInput::gate_up);
  }

  /// `rows` may be undefined unless needs_rows().
  void send(const Tensor& rows, const Tensor& dy) {
    rows_ = rows;
    tokens_ = dy.shape();
    dy_ = call_.send(call_.down, dy, {});
  }

  /// Adds to the weights' gradients. The other gradients begin to travel back.
  void compute(bool wants_dx, bool wants_dweights, LayerGradients& sums) {
    through_down(sums.down);
    if (!wants_dx && !wants_dweights && !call_.gate_up.trains()) return;
    gate_up_ = fp8_factor(call_.gate_up.weight, Fp8Role::gradient, gate_up_.values);
    const bool weighed = call_.weighs(WeighedInput::gate_up);
    const bool sends = wants_dx || (weighed && wants_dweights);
    // Rows travel while the weight's gradient is computed.
    if (!call_.at.travel()) add_gate_up(sums.gate_up);
    if (sends) call_.divides() ? sum_parts_back() : send_back();
    if (call_.at.travel()) add_gate_up(sums.gate_up);
    gate_up_ = {};
  }

  /// Returns {dx, dweights}.
  Gradients finish(bool wants_dx, bool wants_dweights) {
    const bool weighed = call_.weighs(WeighedInput::gate_up);
    if (!weighed && dweights_.rows.defined()) {
      dweights_ = {call_.weights_of_tokens(std::exchange(dweights_, {}))};
    }
    if (drows_.rows.defined()) {
      const Tensor drows = call_.at.arrived(std::exchange(drows_, {}));
      if (weighed) {
        const Tensor x = like(drows);
        dispatch(x, rows_, call_.places);
        dweights_ = {like(call_.weights)};
        weigh_backward(drows, dweights_.rows, drows, x, call_.places, call_.weights);
      }
      if (wants_dx) {
        dx_ = activation(tokens_, drows.dtype());
        combine(dx_, drows, call_.places);
      }
    }
    return {wants_dx ? dx_ : Tensor(), wants_dweights ? dweights_.rows : Tensor()};
  }

 private:
  /// Adds to down's gradient. gate_up_ becomes its own gradient.
  void through_down(ExpertLayerGradient& sum) {
    const RoutedRows dy = call_.at_experts(call_.down, Fp8Role::gradient, std::exchange(dy_, {}));
    const bool weighed = call_.weighs(WeighedInput::down);
    Tensor dweights = weighed ? weights_gradient(call_.weights_there) : Tensor();
    const Tensor h =
        call_.down.swiglu_gradient(dweights, gate_up_.values, dy, call_.at.offsets(),
                                   call_.places_there, call_.at.slots(), call_.weights_there);
    if (weighed && call_.divides()) dweights = sum_of_parts(dweights);
    if (weighed) dweights_ = call_.at.to_tokens(dweights);
    if (!call_.down.trains()) return;
    sum.add(fp8_factor(call_.down.weight, Fp8Role::input, h), dy, call_.at);
  }

  /// Adds to gate_up's gradient; gate_up_ holds the gradient of its result.
  void add_gate_up(ExpertLayerGradient& sum) {
    if (!call_.gate_up.trains()) return;
    const RoutedRows x =
        received_.values.defined() ? received_ : call_.inputs(call_.send_inputs(rows_));
    received_ = {};
    sum.add(x, gate_up_, call_.at);
  }

  void send_back() {
    Tensor drows = call_.gate_up.input_gradient(gate_up_, call_.at.offsets());
    if (!call_.at.travel()) gate_up_ = {};
    drows_ = call_.at.to_tokens(call_.at.by_arrival(drows));
  }

  /// dx of this rank's parts and, for WeighedInput::gate_up, dweights.
  void sum_parts_back() {
    const DType dtype = statistics_dtype(product_dtype(gate_up_));
    dx_ = activation(tokens_, dtype);
    const auto rows = [&](std::int64_t part) {
      return call_.at_tokens(call_.gate_up.input_gradient_part(gate_up_, call_.at.offsets(), part));
    };
    const std::int64_t parts = call_.gate_up.parts();
    if (call_.weighs(WeighedInput::down)) {
      combine_parts(dx_, parts, rows, call_.places, {});
    } else {
      dweights_ = {activation(call_.weights.shape(), dtype)};
      weigh_parts(dx_, dweights_.rows, parts, rows, rows_, call_.places, call_.weights);
    }
  }

  /// Memory for the gradient of these weights: a sum or, where ranks divide it, one for each part.
  Tensor weights_gradient(const Tensor& weights) const {
    if (!call_.divides()) return like(weights);
    return activation({call_.down.parts(), weights.size(0), weights.size(1)},
                      statistics_dtype(weights.dtype()));
  }

  Call call_;
  Shape tokens_;
  Tensor rows_, dx_;
  RoutedRows received_;
  Factor gate_up_;
  Journey dy_, dweights_, drows_;
};

/// A piece of this rank's tokens on its way forward.
class Forward {
 public:
  /// Where ranks divide the sums, y [N, C] f32 (f64) gets this rank's parts of them, without a residual.
  Forward(Call call, Tensor rows, Tensor y, Tensor residual)
      : call_(std::move(call)),
        rows_(std::move(rows)),
        y_(std::move(y)),
        residual_(std::move(residual)) {}

  void send() {
    weights_ = call_.send_weights();
    way_ = call_.send_inputs(rows_);
  }

  void compute() {
    call_.weights_arrived(std::exchange(weights_, {}));
    at_experts_ = call_.inputs(std::exchange(way_, {}));
    Factor h;
    std::tie(gate_up_, h.values) = call_.gate_up.gated(at_experts_, call_.at.offsets());
    h = fp8_factor(call_.down.weight, Fp8Role::input, h.values);
    // Backward makes them again where they need not travel.
    if (!call_.at.travel() || !call_.gate_up.trains()) at_experts_ = {};
    if (call_.divides()) {
      const auto results = [&](std::int64_t part) {
        return call_.at_tokens(call_.down.part(h, call_.at.offsets(), part));
      };
      combine_parts(y_, call_.down.parts(), results, call_.places, weights_of_results());
      return;
    }
    Tensor results = call_.down(h, call_.at.offsets());
    h = {};
    results = call_.at.by_arrival(results);
    way_ = call_.at.to_tokens(results);
  }

  /// Writes y. Returns the way back.
  Backward finish() {
    if (!call_.divides()) {
      const Tensor results = call_.at.arrived(std::exchange(way_, {}));
      combine(y_, results, call_.places, weights_of_results(), residual_);
    }
    return Backward(std::move(call_), std::move(at_experts_), std::move(gate_up_));
  }

 private:
  Tensor weights_of_results() const {
    return call_.weighs(WeighedInput::down) ? call_.weights : Tensor();
  }

  Call call_;
  Tensor rows_, y_, residual_, gate_up_;
  RoutedRows at_experts_;
  Journey weights_, way_;
};

void check_layers(const Variable& x, const ExpertLayer& up, const ExpertLayer& down,
                  std::int64_t E) {
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

/// The pieces that a rank's tokens are computed in: the leaves of its tokens, or those that travel to the
/// experts one by one.
std::int64_t pieces_of(const std::shared_ptr<ExpertExchange>& exchange) {
  if (exchange == nullptr || token_leaves() > 1) return token_leaves();
  return exchange->choices().pieces;
}

std::vector<DispatchOrder> dispatch_orders(const Routing& routing, std::int64_t pieces) {
  if (pieces == 1) return {routing.order};
  std::vector<DispatchOrder> orders;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    orders.push_back(make_dispatch_order(rows_of_leaf(routing.experts, piece, pieces),
                                         routing.order.offsets.numel() - 1));
  }
  return orders;
}

}  // namespace

Variable experts(const Variable& x, const Routing& routing, const Parameter& gate_up,
                 const Parameter& down, const ExpertOptions& options, const Variable& residual) {
  const ExpertLayer first{gate_up, options.layout}, second{down, options.layout};
  check_layers(x, first, second, routing.order.offsets.numel() - 1);
  const std::shared_ptr<ExpertExchange>& exchange = gate_up.exchange();
  const std::int64_t pieces = pieces_of(exchange);
  const SharedAxis axis = gate_up.tensor_axis();
  const Tensor own = as_rows(x.data()), rows = whole_rows(axis, own);
  const Tensor residuals = residual_rows(residual, x.shape(), "experts");
  const Tensor results =
      axis == nullptr ? like(own) : activation(rows.shape(), statistics_dtype(rows.dtype()));
  const std::vector<DispatchOrder> orders = dispatch_orders(routing, pieces);
  std::vector<ExpertRows> ways = ExpertRows::of_pieces(orders, exchange);
  std::vector<Forward> forwards;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const auto of = [&](const Tensor& all) { return rows_of_leaf(all, piece, pieces); };
    const auto i = static_cast<std::size_t>(piece);
    forwards.emplace_back(Call{.gate_up = first,
                               .down = second,
                               .weighed = options.weighed,
                               .weights = of(routing.weights.data()),
                               .places = orders[i].places,
                               .at = std::move(ways[i])},
                          of(rows), of(results), axis == nullptr ? of(residuals) : Tensor());
  }
  std::vector<Backward> backwards;
  const auto each = [&](const auto& stage) {
    return [&](std::int64_t piece) { stage(forwards[static_cast<std::size_t>(piece)]); };
  };
  run_stages(pieces, exchange != nullptr, each([](Forward& piece) { piece.send(); }),
             each([](Forward& piece) { piece.compute(); }),
             each([&](Forward& piece) { backwards.push_back(piece.finish()); }));
  const Tensor y =
      axis == nullptr ? results : scatter_rounded(axis, results, {}, residuals, rows.dtype());
  return differentiable(
      y.reshape(x.shape()), {x, routing.weights, residual}, first.trains() || second.trains(),
      [backwards = std::move(backwards), own, axis, first, second, needs_dx = x.requires_gradient(),
       needs_dw = routing.weights.requires_gradient(), travel = exchange != nullptr,
       shape = x.shape()](const Tensor& dy) mutable -> Gradients {
        const auto count = static_cast<std::int64_t>(backwards.size());
        const Tensor dy_rows = whole_rows(axis, as_rows(dy));
        const Tensor rows = backwards.front().needs_rows() ? whole_rows(axis, own) : Tensor();
        LayerGradients sums{{first, count}, {second, count}};
        JoinedPieces dx(count, dy_rows.size(0)), dweights(count, dy_rows.size(0));
        const auto at = [&](std::int64_t piece) -> Backward& {
          return backwards[static_cast<std::size_t>(piece)];
        };
        run_stages(
            count, travel,
            [&](std::int64_t piece) {
              at(piece).send(rows_of_leaf(rows, piece, count), rows_of_leaf(dy_rows, piece, count));
            },
            [&](std::int64_t piece) { at(piece).compute(needs_dx, needs_dw, sums); },
            [&](std::int64_t piece) {
              const Gradients of_piece = Backward(std::move(at(piece))).finish(needs_dx, needs_dw);
              dx.add(of_piece[0]);
              dweights.add(of_piece[1]);
            });
        if (axis == nullptr) {
          return {needs_dx ? dx.joined().reshape(shape) : Tensor(), dweights.joined(), dy};
        }
        const DType dtype = dy.dtype();
        return {
            needs_dx ? scatter_rounded(axis, dx.joined(), {}, {}, dtype).reshape(shape) : Tensor(),
            needs_dw ? whole_sum(axis, dweights.joined(), dtype) : Tensor(), dy};
      });
}

}  // namespace tessera
