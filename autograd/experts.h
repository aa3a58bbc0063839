// The feed-forward layer of a mixture of experts.
//
// The operations are in kernels/router, kernels/dispatch and kernels/grouped_matmul; the chapter on
// them is docs/kernels/moe.md.
//
//   const Routing routing = route(linear(x, router, {}), {.experts_per_token = 8});
//   const Variable y = experts(x, routing, gate_up, down, options);
#pragma once

#include <memory>

#include "autograd/operations.h"
#include "kernels/router/op.h"

namespace tessera {

/// Where N tokens go: k of E experts each.
struct Routing {
  Variable weights;  // [N, k]
  Tensor experts;    // [N, k] i32, ascending in each row
  Tensor places;     // [N, k] i32: each slot's dispatched row (kernels/dispatch/op.h)
  Tensor offsets;    // [E + 1] i32: expert e has the dispatched rows [offsets[e], offsets[e + 1])
};

struct RouterOptions {
  std::int64_t experts_per_token = 1;
  RouterWeights weights = RouterWeights::softmax;
  /// [E] f32 (f64 for f64), added for the choice only; may be undefined.
  Tensor bias;
};

/// Routes tokens by their logits [..., E].
Routing route(const Variable& logits, const RouterOptions& options);

/// The place where a token's weight comes in. gate_up: Llama 4 multiplies the expert's input. down:
/// Qwen3-MoE multiplies the expert's result. Backward moves that factor to the input of `down`, which has
/// fewer channels.
enum class WeighedInput { gate_up, down };

struct ExpertOptions {
  /// The layout of each expert's matrices. out_in: gate_up is [E, 2 F, C] and down [E, C, F]; in_out:
  /// [E, C, 2 F] and [E, F, C]. gate_up has the gate's F outputs, then those of up.
  WeightLayout layout = WeightLayout::out_in;
  WeighedInput weighed = WeighedInput::down;
};

/// x [..., C] -> [..., C]: the sum over a token's experts e with weights w_e of
///
///   WeighedInput::down      w_e (h down_e) with h = silu(gate) * up and (gate, up) = x gate_up_e
///   WeighedInput::gate_up   h down_e with (gate, up) = (w_e x) gate_up_e
///
/// plus `residual` [..., C] if it is defined, in one node. It saves x, the weights and (gate, up),
/// [N k, 2 F]; the dispatched rows and h are computed again in backward. An expert without tokens adds
/// nothing to its gradients.
///
/// Where ranks share out the experts (Parameter::share_out), every rank's call is a collective: rows
/// travel to their experts and back (expert_rows.h), with the same bits. The rows at the experts are
/// saved, so that they do not travel twice. A layer's two parameters have one exchange.
Variable experts(const Variable& x, const Routing& routing, const Parameter& gate_up,
                 const Parameter& down, const ExpertOptions& options,
                 const Variable& residual = {});

/// The sum over tokens of router_loss (kernels/router_loss/op.h), a scalar [1], for logits [..., E].
/// `factors` [E] f32 (f64 for f64) have no gradient.
Variable router_loss(const Variable& logits, const Tensor& factors, double z);

/// The losses of one router. They are read in backward, so they may be set after the router's
/// forward pass: a loss on the loads of all layers is known when the last layer has routed.
struct RouterLossTerms {
  Tensor factors;  // [E] f32 (f64 for f64)
  double z = 0.0;
  /// The gradient of the terms' sum: 1, or the factor of a scaled loss.
  double scale = 1.0;
};

/// `logits` as they are. In backward the gradient of terms->scale * router_loss(logits,
/// terms->factors, terms->z) is added to theirs.
Variable add_router_loss(const Variable& logits, std::shared_ptr<const RouterLossTerms> terms);

}  // namespace tessera
