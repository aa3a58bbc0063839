// The losses that keep a router balanced and its logits small, per token.
//
//   loss[n] = sum over e of factors[e] p[n, e] + z logsumexp(logits[n, :])^2,  p = softmax(logits[n, :])
//   dlogits[n, j] = dloss[n] p_j (factors[j] - sum over e of factors[e] p_e + 2 z logsumexp)
//
//   logits [N, E] floating; factors [E], loss and dloss [N] f32 (f64 for f64); logits are saved for
//   backward
//
// The first term is linear in p: with factors in proportion to each expert's load it is the balance
// loss of Switch Transformers (Fedus et al. 2021), E sum_e f_e P_e with f_e the load and P_e the mean of
// p_e (models/balance.h makes the factors). The second is the router z-loss of ST-MoE (Zoph et al.
// 2022).
#pragma once

#include "kernels/op.h"

namespace tessera {

void router_loss_forward(Out loss, const Tensor& logits, const Tensor& factors, double z);
void router_loss_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                          const Tensor& factors, double z);

namespace cpu {
decltype(tessera::router_loss_forward) router_loss_forward;
decltype(tessera::router_loss_backward) router_loss_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::router_loss_forward) router_loss_forward;
decltype(tessera::router_loss_backward) router_loss_backward;
}  // namespace cuda

}  // namespace tessera
