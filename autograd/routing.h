// Routing: the experts that each token goes to, and the losses of a router.
//
// The operations are in kernels/router, kernels/dispatch and kernels/router_loss; the chapter on them is
// docs/kernels/moe.md.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/variable.h"
#include "kernels/router/op.h"

namespace tessera {

/// Where the rows of N tokens with k experts each are dispatched to (kernels/dispatch/op.h).
struct DispatchOrder {
  Tensor places;   // [N, k] i32: each slot's dispatched row
  Tensor offsets;  // [E + 1] i32: expert e has the dispatched rows [offsets[e], offsets[e + 1])
  Tensor slots;    // [N k] i32: each dispatched row's slot; only on GPUs, whose kernels read it
};

/// The order of rows for `count` experts: `experts` [N, k] i32.
DispatchOrder make_dispatch_order(const Tensor& experts, std::int64_t count);

/// Where N tokens go: k of E experts each.
struct Routing {
  Variable weights;  // [N, k]
  Tensor experts;    // [N, k] i32, ascending in each row
  DispatchOrder order;
};

struct RouterOptions {
  std::int64_t experts_per_token = 1;
  RouterWeights weights = RouterWeights::softmax;
  /// [E] f32 (f64 for f64), added for the choice only; may be undefined.
  Tensor bias;
};

/// Routes tokens by their logits [..., E].
Routing route(const Variable& logits, const RouterOptions& options);

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
