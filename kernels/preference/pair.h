// The loss of one pair and its derivatives, for the host and for device code.
#pragma once

#include "kernels/preference/op.h"

#if defined(__CUDACC__)
#define TESSERA_PREFERENCE_FUNCTION __host__ __device__
#else
#define TESSERA_PREFERENCE_FUNCTION
#endif

namespace tessera {

/// A document's sum of log-probabilities, that of the reference, and the number of its targets.
template <typename Real>
struct AnswerSums {
  Real sum = 0, reference = 0, targets = 0;
};

template <typename Real>
struct PairTerms {
  Real loss, chosen_reward, rejected_reward;
  /// The derivatives of `loss` with respect to each of the two documents' cross-entropies.
  Real chosen_factor, rejected_factor;
};

/// Math::softplus(x) = log(1 + e^x) and Math::sigmoid(x) = 1 / (1 + e^-x). A document without targets has
/// the mean 0.
template <typename Math, typename Real>
TESSERA_PREFERENCE_FUNCTION PairTerms<Real> terms_of(const AnswerSums<Real>& chosen,
                                                     const AnswerSums<Real>& rejected,
                                                     const PreferenceLoss& options) {
  const Real beta = static_cast<Real>(options.beta), nll = static_cast<Real>(options.nll);
  const Real smoothing = static_cast<Real>(options.label_smoothing);
  const Real chosen_share = chosen.targets > 0 ? 1 / chosen.targets : Real(0);
  const Real rejected_share = rejected.targets > 0 ? 1 / rejected.targets : Real(0);
  const bool sums = options.kind == PreferenceKind::dpo;
  const bool refers = options.kind != PreferenceKind::simpo;
  const Real chosen_weight = sums ? beta : beta * chosen_share;
  const Real rejected_weight = sums ? beta : beta * rejected_share;
  const Real chosen_reward = chosen_weight * (chosen.sum - (refers ? chosen.reference : 0));
  const Real rejected_reward = rejected_weight * (rejected.sum - (refers ? rejected.reference : 0));
  const Real h = chosen_reward - rejected_reward;
  Real loss, slope;  // by h
  if (options.kind == PreferenceKind::ipo) {
    const Real distance = h / beta - 1 / (2 * beta);
    loss = distance * distance;
    slope = 2 * distance / beta;
  } else {
    const Real x = h - static_cast<Real>(options.margin);
    loss = (1 - smoothing) * Math::softplus(-x) + smoothing * Math::softplus(x);
    slope = smoothing * Math::sigmoid(x) - (1 - smoothing) * Math::sigmoid(-x);
  }
  return {loss - nll * chosen_share * chosen.sum, chosen_reward, rejected_reward,
          nll * chosen_share - slope * chosen_weight, slope * rejected_weight};
}

}  // namespace tessera
