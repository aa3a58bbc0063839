// Router of a mixture of experts: each token's k experts and their weights.
//
//   a token's experts: the k largest logits; of equal logits the one with the lower index
//   with l_e the logits of token n, the weight of a chosen expert e is
//
//     softmax             p_e = e^l_e / (sum over all experts of e^l)
//     normalized_softmax  p_e / (sum over the chosen of p) = e^l_e / (sum over the chosen of e^l)
//     sigmoid             1 / (1 + e^-l_e)
//
//   logits [N, E] floating, E <= 1024; weights [N, k] of their dtype, 1 <= k <= E; experts [N, k]
//   i32, ascending in each row
//
// Qwen3-MoE has softmax weights (normalized if `norm_topk_prob`), as Transformers' Qwen3MoeTopKRouter.
// Llama 4 has sigmoid weights, as Llama4Router, and multiplies its experts' inputs by them.
//
// With a bias, the experts of token n are those with the largest s_e + bias_e, where s is sigmoid(l)
// for sigmoid weights and p otherwise. Weights do not depend on it (Wang et al. 2024, auxiliary-loss-
// free load balancing). bias [E] f32 (f64 for f64), or undefined.
//
// NaN counts as larger than every number, so each row has k different experts for any logits.
//
// The choice has no gradient. Backward, with g = dweights and sums over the chosen experts:
//
//     softmax             dl_j = p_j (g_j - sum g_e p_e) for every j, with g_j = 0 if j is not chosen
//     normalized_softmax  dl_j = w_j (g_j - sum g_e w_e) for the chosen, 0 for the others
//     sigmoid             dl_j = g_j w_j (1 - w_j) for the chosen, 0 for the others
//
// logits and experts are saved for backward. dlogits must not be logits.
#pragma once

#include "kernels/op.h"

namespace tessera {

enum class RouterWeights { softmax, normalized_softmax, sigmoid };

inline constexpr std::int64_t kMostExperts = 1024;

void router_forward(Out weights, Out experts, const Tensor& logits, const Tensor& bias,
                    RouterWeights kind);
void router_backward(Out dlogits, const Tensor& dweights, const Tensor& logits,
                     const Tensor& experts, RouterWeights kind);

namespace cpu {
decltype(tessera::router_forward) router_forward;
decltype(tessera::router_backward) router_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::router_forward) router_forward;
decltype(tessera::router_backward) router_backward;
}  // namespace cuda

}  // namespace tessera
