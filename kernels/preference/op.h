// Losses of pairs of answers, of which one is preferred.
//
// A row of T tokens has documents that follow each other. Documents 2k and 2k + 1 are pair k: the chosen answer
// and the rejected one, each behind its prompt. A last document without a partner is padding.
//
//   losses [R, T]       cross-entropies of the tokens' targets, 0 without one
//   targets [R, T] i32  kIgnoreIndex without one
//   starts [R, T] i32   the place in the row where the token's document starts (models/documents.h)
//   reference [R, T]    in the first place of each document its log-probability by the reference model
//
// With l the sum of -losses over a document, n the number of its targets, and r its reference:
//
//               reward of a document    loss of a pair, by h = chosen reward - rejected reward
//   dpo         beta (l - r)            (1 - s) softplus(m - h) + s softplus(h - m)
//   ipo         beta (l - r) / n        (h / beta - 1 / (2 beta))^2
//   simpo       beta l / n              as dpo
//
// s is the label smoothing and m the margin. `nll` times the mean of the chosen document's losses is added:
// each pair counts alike (sequence_mean). softplus(x) = log(1 + e^x).
//
// Sources: Rafailov et al. 2023 (DPO, equation 7); Azar et al. 2023 (IPO, equation 17), with the means of TRL's
// DPOTrainer; Meng et al. 2024 (SimPO, equation 6; its gamma is m); TRL's CPOTrainer.
#pragma once

#include "kernels/op.h"

namespace tessera {

enum class PreferenceKind { dpo, ipo, simpo };

struct PreferenceLoss {
  PreferenceKind kind = PreferenceKind::dpo;
  double beta = 0.1;
  double label_smoothing = 0.0;
  double margin = 0.0;
  double nll = 0.0;
};

/// The numbers of `sums`: sums over the pairs of their losses, of the pairs whose chosen reward is the larger
/// one, and of both rewards.
inline constexpr std::int64_t kPreferenceSums = 4;
enum PreferenceSum { kPairLoss, kPairAccuracy, kChosenReward, kRejectedReward };

/// sums [4], each times `scale`. factors [R, T]: the derivative of the first with respect to each of `losses`, or
/// undefined. sequences [R, T]: in the first place of each document its sum l, zero elsewhere; or undefined.
/// Floating tensors have the dtype of `losses`, f32 or f64. A document is added in the order of its tokens on a
/// CPU, and pairs are added row by row.
void preference_loss(Out sums, Out factors, Out sequences, const Tensor& losses,
                     const Tensor& targets, const Tensor& starts, const Tensor& reference,
                     const PreferenceLoss& options, double scale);

namespace cpu {
decltype(tessera::preference_loss) preference_loss;
}
namespace cuda {
decltype(tessera::preference_loss) preference_loss;
}

}  // namespace tessera
