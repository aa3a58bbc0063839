#include "autograd/routing.h"

#include <utility>

#include "autograd/activation_watch.h"
#include "autograd/activations.h"
#include "kernels/add/op.h"
#include "kernels/dispatch/op.h"
#include "kernels/reduce/op.h"
#include "kernels/router_loss/op.h"
#include "runtime/category.h"

namespace tessera {

DispatchOrder make_dispatch_order(const Tensor& experts, std::int64_t count) {
  DispatchOrder order{
      activation(experts.shape(), DType::i32), activation({count + 1}, DType::i32), {}};
  if (!experts.device().is_cpu()) order.slots = activation({experts.numel()}, DType::i32);
  dispatch_order(order.places, order.offsets, order.slots, experts);
  return order;
}

Routing route(const Variable& logits, const RouterOptions& options) {
  const Tensor rows = as_rows(logits.data());
  if (ActivationWatch* const watch = activation_watch()) watch->router(rows);
  const Shape shape{rows.size(0), options.experts_per_token};
  const Tensor weights = activation(shape, rows.dtype());
  const Tensor experts = activation(shape, DType::i32);
  router_forward(weights, experts, rows, options.bias, options.weights);
  const auto backward = [rows, experts, kind = options.weights,
                         shape = logits.shape()](Tensor dweights) -> Gradients {
    const Tensor dlogits = like(rows);
    router_backward(dlogits, dweights, rows, experts, kind);
    return {dlogits.reshape(shape)};
  };
  return {differentiable(weights, {logits}, false, backward), experts,
          make_dispatch_order(experts, rows.size(1))};
}

Variable router_loss(const Variable& logits, const Tensor& factors, double z) {
  const Tensor rows = as_rows(logits.data());
  const DType dtype = statistics_dtype(rows.dtype());
  const Tensor losses = activation({rows.size(0)}, dtype), total = activation({1}, dtype);
  router_loss_forward(losses, rows, factors, z);
  sum(total, losses);
  const auto backward = [rows, factors, z, dtype, shape = logits.shape()](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses = Tensor::full({rows.size(0)}, dtype, scalar_gradient(dy));
    const Tensor dlogits = like(rows);
    router_loss_backward(dlogits, dlosses, rows, factors, z);
    return {dlogits.reshape(shape)};
  };
  return differentiable(total, {logits}, false, backward);
}

Variable add_router_loss(const Variable& logits, std::shared_ptr<const RouterLossTerms> terms) {
  const Tensor rows = as_rows(logits.data());
  const auto backward = [rows, terms = std::move(terms),
                         shape = logits.shape()](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses =
        Tensor::full({rows.size(0)}, statistics_dtype(rows.dtype()), terms->scale);
    const Tensor dlogits = like(rows);
    router_loss_backward(dlogits, dlosses, rows, terms->factors, terms->z);
    add(dlogits, dlogits, dy.reshape(rows.shape()));
    return {dlogits.reshape(shape)};
  };
  return differentiable(logits.data(), {logits}, false, backward);
}

}  // namespace tessera
