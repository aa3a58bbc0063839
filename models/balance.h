// Balance of the experts' loads: the arithmetic of each mode, on integer counts.
//
// A layer's counts say how many (token, slot) pairs each expert had. They are integers, so their sum
// over micro-batches and ranks does not depend on order, and neither does anything made of them.
//
//   mode     acts by                                         counts
//   none     nothing
//   bias     a bias per expert, moved once per step          of the whole step, all ranks
//   lagged   a loss, linear in this step's probabilities     of the last step, all ranks
//   hf       Transformers' load_balancing_loss_func          of the micro-batch, all layers together
//
// `bias` and `lagged` give the same bits for any cut of a step into micro-batches and ranks. `hf`
// depends on the cut: the product of two means is not the mean of products. It is for comparisons
// with Transformers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/enum_names.h"
#include "runtime/tensor.h"

namespace tessera {

enum class Balance { none, bias, lagged, hf };
template <>
inline constexpr EnumNames<Balance> kEnumNames<Balance> = {"balance",
                                                           {"none", "bias", "lagged", "hf"}};

/// The counts of a layer from its offsets [E + 1] (kernels/dispatch/op.h). Waits for the device.
std::vector<std::int64_t> expert_counts(const Tensor& offsets);

/// bias_e += d_e - mean(d) with d_e = rate sign(mean(counts) - count_e): experts with less than the
/// mean load become more likely (Wang et al. 2024). The mean of the biases stays. Equal lengths.
void update_router_bias(std::span<float> bias, std::span<const std::int64_t> counts, double rate);

/// Factors of router_loss (autograd/experts.h) whose sum over `tokens` tokens is the balance loss
///
///   coefficient E sum_e f_e P_e,   f_e = counts_e / counted_tokens,  P_e = mean of p_e over the tokens
///
/// With perfect balance that is coefficient times k, as in Transformers. `tokens` and
/// `counted_tokens` are at least 1.
///
///   lagged   counted_tokens: tokens of the last step; tokens: of this step times the layers
///   hf       both: tokens of the micro-batch times the layers; counts: sums over the layers
std::vector<double> balance_factors(std::span<const std::int64_t> counts, double coefficient,
                                    std::int64_t counted_tokens, std::int64_t tokens);

/// The largest count over the mean count: 1 in perfect balance, E if one expert has all. 1 without
/// tokens.
double load_imbalance(std::span<const std::int64_t> counts);

}  // namespace tessera
