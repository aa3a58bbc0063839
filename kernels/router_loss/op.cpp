#include "kernels/router_loss/op.h"

#include "kernels/checks.h"

namespace tessera {
namespace {

/// Checks logits [N, E], factors [E] and losses [N] in the dtype of statistics.
void check_losses(std::string_view op, const Argument& losses, const Tensor& logits,
                  const Tensor& factors) {
  check_floating(op, {"logits", logits});
  check_rank(op, {"logits", logits}, 2);
  const DType dtype = statistics_dtype(logits.dtype());
  check_dtype(op, losses, dtype);
  check_dtype(op, {"factors", factors}, dtype);
  check_shape(op, losses, {logits.size(0)});
  check_shape(op, {"factors", factors}, {logits.size(1)});
}

}  // namespace

void router_loss_forward(Out loss, const Tensor& logits, const Tensor& factors, double z) {
  constexpr std::string_view op = "router_loss_forward";
  check_on_one_device(op, {{"loss", loss}, {"logits", logits}, {"factors", factors}});
  check_losses(op, {"loss", loss}, logits, factors);
  check_apart(op, {"loss", loss}, {"logits", logits});
  check_apart(op, {"loss", loss}, {"factors", factors});
  run_on<cpu::router_loss_forward, cuda::router_loss_forward>(loss.device(), op, loss, logits,
                                                              factors, z);
}

void router_loss_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                          const Tensor& factors, double z) {
  constexpr std::string_view op = "router_loss_backward";
  check_on_one_device(
      op, {{"dlogits", dlogits}, {"dloss", dloss}, {"logits", logits}, {"factors", factors}});
  check_losses(op, {"dloss", dloss}, logits, factors);
  check_same_floating(op, {{"dlogits", dlogits}, {"logits", logits}});
  check_same_shape(op, {"dlogits", dlogits}, {"logits", logits});
  for (const Argument& input :
       {Argument{"dloss", dloss}, {"logits", logits}, {"factors", factors}}) {
    check_apart(op, {"dlogits", dlogits}, input);
  }
  run_on<cpu::router_loss_backward, cuda::router_loss_backward>(dlogits.device(), op, dlogits,
                                                                dloss, logits, factors, z);
}

}  // namespace tessera
