// Cross-entropy, of logits and of the head's product.
#include "autograd/operations.h"

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/engine.h"
#include "autograd/operations/divided_loss.h"
#include "autograd/operations/head_gradient.h"
#include "kernels/reduce/op.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera {

Variable cross_entropy(const Variable& logits, const Tensor& targets, int ignore_index) {
  const Tensor x = logits.data();
  const DType dtype = statistics_dtype(x.dtype());
  const Tensor flat = targets.reshape({targets.numel()});
  const Tensor losses = activation({flat.numel()}, dtype);
  const Tensor logsumexp = like(losses);
  cross_entropy_forward(losses, logsumexp, x, flat, ignore_index);
  std::int64_t valid = 0;
  for (const std::int32_t target : flat.to_vector<std::int32_t>()) valid += target != ignore_index;
  const double mean = valid == 0 ? 0.0 : 1.0 / static_cast<double>(valid);
  const Tensor total = activation({1}, dtype);
  sum(total, losses);
  scale(total, total, mean);

  const auto backward = [x, logsumexp, flat, dtype, mean, ignore_index](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses = Tensor::full({flat.numel()}, dtype, mean * scalar_gradient(dy));
    const Tensor dx = like(x);
    cross_entropy_backward(dx, dlosses, x, logsumexp, flat, ignore_index);
    return {dx};
  };
  return differentiable(total, {logits}, false, backward);
}

Variable end_of_graph(const Tensor& loss, const Variable& x, const Parameter& weight,
                      const Tensor& dx) {
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

Variable linear_cross_entropy(const Variable& x, const Parameter& weight, const Tensor& targets,
                              double loss_scale, int ignore_index, std::int64_t chunk,
                              FurtherUse further_use) {
  if (weight.tensor_axis() != nullptr) {
    return divided_cross_entropy(x, weight, targets, loss_scale, ignore_index, chunk, further_use);
  }
  const Tensor rows = as_rows(x.data());
  const Tensor loss = activation({1}, statistics_dtype(x.dtype()));
  const bool recording = gradients_enabled() && (x.requires_gradient() || weight.trainable());
  Tensor dx;
  if (recording && x.requires_gradient()) dx = like(rows);
  const std::int64_t leaves = token_leaves();
  const Tensor flat = targets.reshape({targets.numel()});
  LeafSum of_loss(loss, Accumulate::no, leaves);
  HeadGradient of_weight(weight, recording && weight.trainable(), further_use, leaves);
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
    linear_cross_entropy(of_loss.next(), rows_of_leaf(dx, leaf, leaves), of_weight.next(),
                         rows_of_leaf(rows, leaf, leaves), weight.data(),
                         rows_of_leaf(flat, leaf, leaves), loss_scale, of_weight.accumulate(),
                         ignore_index, chunk);
    of_loss.added();
    of_weight.added();
  }
  return end_of_graph(loss, x, weight, dx);
}

}  // namespace tessera
