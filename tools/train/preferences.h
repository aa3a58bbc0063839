// Preferences: the objective of a session that trains on pairs of answers.
#pragma once

#include "autograd/row_objective.h"
#include "kernels/preference/op.h"
#include "tools/config/config.h"
#include "tools/data/loader.h"

namespace tessera {

/// Whether the objective is a loss of pairs, and whether that needs a reference.
inline bool compares_pairs(Objective objective) {
  return objective == Objective::dpo || objective == Objective::ipo ||
         objective == Objective::simpo;
}
inline bool needs_reference(Objective objective) {
  return compares_pairs(objective) && objective != Objective::simpo;
}

/// Means over pairs.
struct PreferenceMeans {
  /// The share of pairs with the larger reward for the chosen answer.
  double accuracy = 0.0;
  double chosen_reward = 0.0, rejected_reward = 0.0;

  double margin() const { return chosen_reward - rejected_reward; }
};

/// Numbers behind a loss in a session's sums: accuracy and both rewards, or none.
inline std::int64_t numbers_behind_loss(Objective objective) {
  return compares_pairs(objective) ? kPreferenceSums - 1 : 0;
}

/// Those of numbers that were added up over pairs, after the loss.
PreferenceMeans preference_means(const float* behind_loss, double loss_scale = 1.0);

/// The loss of a configured objective.
PreferenceLoss preference_loss_of(const Config& config);

/// Its objective for a batch, times `scale`. Adds the numbers behind the loss to `sums` [3], unless that is
/// undefined, and writes the sums of log-probabilities to `sequences` [B, T], unless that is.
RowObjective preference_objective(const PreferenceLoss& options, const Batch& batch, double scale,
                                  const Tensor& sums, const Tensor& sequences = Tensor());

/// Raises Error, with the place of the key, if data or sharding do not suit the objective.
void check_objective(const Config& config);

}  // namespace tessera
