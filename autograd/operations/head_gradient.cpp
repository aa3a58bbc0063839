#include "autograd/operations/head_gradient.h"

#include <utility>

#include "autograd/activations.h"

namespace tessera {

HeadGradient::HeadGradient(const Parameter& weight, bool wanted, FurtherUse further_use,
                           std::int64_t leaves)
    : weight_(weight),
      leaves_stay_(wanted && further_use == FurtherUse::yes && leaves > 1),
      leaves_(leaves),
      sum_(wanted && !leaves_stay_ ? LeafSum(weight.gradient(), weight.next_contribution(), leaves)
                                   : LeafSum({}, Accumulate::no, leaves)) {}

Tensor HeadGradient::next() {
  if (!leaves_stay_) return sum_.next();
  left_.push_back(like(weight_.gradient()));
  return left_.back();
}

void HeadGradient::added() {
  sum_.added();
  if (std::ssize(left_) == leaves_) weight_.leave_leaf_gradients(std::move(left_));
}

}  // namespace tessera
