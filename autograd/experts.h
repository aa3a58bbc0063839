// The feed-forward layer of a mixture of experts.
//
// The operations are in kernels/router, kernels/dispatch and kernels/grouped_matmul; the chapter on
// them is docs/kernels/moe.md.
//
//   const Routing routing = route(linear(x, router, {}), {.experts_per_token = 8});
//   const Variable y = experts(x, routing, gate_up, down, options);
#pragma once

#include "autograd/operations.h"
#include "autograd/routing.h"

namespace tessera {

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
/// [N k, 2 F]. Backward dispatches, or gathers, the rows again and computes h again. An expert without
/// tokens adds nothing to its gradients.
///
/// Where ranks share out the experts (Parameter::share_out), every rank's call is a collective: rows
/// travel to their experts and back (expert_rows.h), with the same bits. The rows at the experts are
/// saved, so that they do not travel twice. A layer's two parameters have one exchange.
Variable experts(const Variable& x, const Routing& routing, const Parameter& gate_up,
                 const Parameter& down, const ExpertOptions& options,
                 const Variable& residual = {});

}  // namespace tessera
