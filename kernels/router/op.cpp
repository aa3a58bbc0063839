#include "kernels/router/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// Checks the shapes logits [N, E], weights [N, k] and experts [N, k].
void check_shapes(std::string_view op, const Argument& weights, const Tensor& experts,
                  const Argument& logits) {
  check_rank(op, logits, 2);
  check_rank(op, weights, 2);
  const std::int64_t E = logits.tensor.size(1), k = weights.tensor.size(1);
  check(weights.tensor.size(0) == logits.tensor.size(0) && k >= 1 && k <= E,
        "{}: {} is {} and {} is {}; they must be [N, k] and [N, E] with 1 <= k <= E", op,
        weights.name, describe(weights.tensor), logits.name, describe(logits.tensor));
  check(E <= kMostExperts, "{}: {} is {}; at most {} experts are possible", op, logits.name,
        describe(logits.tensor), kMostExperts);
  check_dtype(op, {"experts", experts}, DType::i32);
  check_same_shape(op, {"experts", experts}, weights);
}

}  // namespace

void router_forward(Out weights, Out experts, const Tensor& logits, const Tensor& bias,
                    RouterWeights kind) {
  constexpr std::string_view op = "router_forward";
  check_on_one_device(op, {{"weights", weights}, {"experts", experts}, {"logits", logits}});
  check_same_floating(op, {{"weights", weights}, {"logits", logits}});
  check_shapes(op, {"weights", weights}, experts, {"logits", logits});
  check_apart(op, {"weights", weights}, {"logits", logits});
  check_apart(op, {"experts", experts}, {"logits", logits});
  if (bias.defined()) {
    check_on_one_device(op, {{"logits", logits}, {"bias", bias}});
    check_dtype(op, {"bias", bias}, statistics_dtype(logits.dtype()));
    check_shape(op, {"bias", bias}, {logits.size(1)});
  }
  run_on<cpu::router_forward, cuda::router_forward>(weights.device(), op, weights, experts, logits,
                                                    bias, kind);
}

void router_backward(Out dlogits, const Tensor& dweights, const Tensor& logits,
                     const Tensor& experts, RouterWeights kind) {
  constexpr std::string_view op = "router_backward";
  check_on_one_device(
      op, {{"dlogits", dlogits}, {"dweights", dweights}, {"logits", logits}, {"experts", experts}});
  check_same_floating(op, {{"dlogits", dlogits}, {"dweights", dweights}, {"logits", logits}});
  check_same_shape(op, {"dlogits", dlogits}, {"logits", logits});
  check_shapes(op, {"dweights", dweights}, experts, {"logits", logits});
  check_apart(op, {"dlogits", dlogits}, {"dweights", dweights});
  check_apart(op, {"dlogits", dlogits}, {"logits", logits});
  check_apart(op, {"dlogits", dlogits}, {"experts", experts});
  run_on<cpu::router_backward, cuda::router_backward>(dlogits.device(), op, dlogits, dweights,
                                                      logits, experts, kind);
}

}  // namespace tessera
