// Cross-entropy, of logits and of the head's product.
#include "autograd/operations.h"

#include <utility>
#include <vector>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/engine.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/divided.h"
#include "autograd/operations/divided_loss.h"
#include "kernels/reduce/op.h"
#include "kernels/round_sum/op.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera {

Variable cross_entropy(const Variable& logits, const Targets& targets, int ignore_index) {
  const Tensor x = logits.data();
  const DType dtype = statistics_dtype(x.dtype());
  const Targets rows = targets.as_rows();
  const Tensor losses = activation({rows.rows()}, dtype);
  const Tensor logsumexp = like(losses);
  cross_entropy_forward(losses, logsumexp, x, rows, ignore_index);
  std::int64_t valid = 0;
  const auto classes = rows.classes.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < classes.size(); i += static_cast<std::size_t>(rows.each())) {
    valid += classes[i] != ignore_index;
  }
  const double mean = valid == 0 ? 0.0 : 1.0 / static_cast<double>(valid);
  const Tensor total = activation({1}, dtype);
  sum(total, losses);
  scale(total, total, mean);

  const auto backward = [x, logsumexp, rows, dtype, mean, ignore_index](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses = Tensor::full({rows.rows()}, dtype, mean * scalar_gradient(dy));
    const Tensor dx = like(x);
    cross_entropy_backward(dx, dlosses, x, logsumexp, rows, ignore_index);
    return {dx};
  };
  return differentiable(total, {logits}, false, backward);
}

Variable linear_cross_entropy(const Variable& x, const Parameter& weight, const Targets& targets,
                              double loss_scale, int ignore_index, std::int64_t chunk,
                              FurtherUse further_use, const RowObjective& objective) {
  const SharedAxis& axis = weight.tensor_axis();
  const Tensor rows = whole_rows(axis, as_rows(x.data()));
  const Tensor loss = activation({1}, statistics_dtype(x.dtype()));
  const bool recording = gradients_enabled() && (x.requires_gradient() || weight.trainable());
  const bool wants_dweight = recording && weight.trainable();
  Tensor dx;  // with an axis the gradient of all rows, before the sum over ranks
  if (recording && x.requires_gradient()) {
    dx = axis == nullptr ? like(rows) : activation(rows.shape(), statistics_dtype(rows.dtype()));
  }
  const std::int64_t leaves = token_leaves();
  const Targets all_targets = targets.as_rows();
  const bool leaves_stay = wants_dweight && further_use == FurtherUse::yes && leaves > 1;
  const auto head = [&](Out of, const HeadGradients& gradients, const Tensor& own_rows,
                        const Targets& own_targets, const Tensor& factors) {
    const double scale = objective ? 1.0 : loss_scale;
    if (axis != nullptr) {
      divided_cross_entropy(of, gradients, own_rows, weight, own_targets, scale, ignore_index,
                            chunk, factors);
    } else {
      linear_cross_entropy(of, gradients.dx, gradients.dweight, own_rows, weight.data(),
                           own_targets, scale, gradients.accumulate, ignore_index, chunk, factors);
    }
  };
  Tensor losses, factors;  // of an objective
  if (objective) {
    check(leaves == 1, "linear_cross_entropy: an objective of rows has no leaves of tokens");
    losses = activation({all_targets.rows()}, loss.dtype());
    if (recording) factors = like(losses);
    head(losses, {}, rows, all_targets, {});
    objective(loss, factors, losses);
    if (!recording) return Variable(loss);
  }
  std::vector<Tensor> left;
  LeafSum of_loss(loss, Accumulate::no, leaves);
  LeafSum of_weight = wants_dweight && !leaves_stay
                          ? LeafSum(weight.gradient(), weight.next_contribution(), leaves)
                          : LeafSum({}, Accumulate::no, leaves);
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    const auto of = [&](const Tensor& all) { return rows_of_leaf(all, leaf, leaves); };
    if (leaves_stay) left.push_back(like(weight.gradient()));
    const HeadGradients gradients = {of(dx), leaves_stay ? left.back() : of_weight.next(),
                                     of_weight.accumulate()};
    const Targets targets_of{of(all_targets.classes), of(all_targets.weights)};
    head(objective ? losses : of_loss.next(), gradients, of(rows), targets_of, of(factors));
    if (!objective) of_loss.added();
    of_weight.added();
  }
  if (leaves_stay) weight.leave_leaf_gradients(std::move(left));
  if (axis != nullptr && dx.defined()) {
    const Tensor own = like(as_rows(x.data()));
    round_sum(own, scatter_sums(axis, dx), {}, {});
    dx = own;
  }
  return differentiable(
      loss, {x}, weight.trainable(), [dx, x_shape = x.shape()](Tensor dy) -> Gradients {
        const double seed = scalar_gradient(dy);
        check(seed == 1.0,
              "linear_cross_entropy: backward's seed is {}; expected 1, because the gradients were "
              "computed in forward. Pass the factor as loss_scale and end the graph here",
              seed);
        return {dx.defined() ? dx.reshape(x_shape) : dx};
      });
}

}  // namespace tessera
