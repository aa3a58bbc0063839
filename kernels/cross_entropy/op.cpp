#include "kernels/cross_entropy/op.h"

#include <string_view>

#include "kernels/checks.h"

namespace tessera {
namespace {

void check_rows(std::string_view op, const Argument& rows, const Tensor& logits) {
  check_dtype(op, rows, statistics_dtype(logits.dtype()));
  check_shape(op, rows, {logits.size(0)});
}

void check_logits_and_targets(std::string_view op, const Tensor& logits, const Tensor& targets) {
  check_floating(op, {"logits", logits});
  check_rank(op, {"logits", logits}, 2);
  check_dtype(op, {"targets", targets}, DType::i32);
  check_shape(op, {"targets", targets}, {logits.size(0)});
}

}  // namespace

void cross_entropy_forward(Out loss, Out logsumexp, const Tensor& logits, const Tensor& targets,
                           int ignore_index) {
  constexpr std::string_view op = "cross_entropy_forward";
  check_on_one_device(
      op, {{"loss", loss}, {"logsumexp", logsumexp}, {"logits", logits}, {"targets", targets}});
  check_logits_and_targets(op, logits, targets);
  for (const Argument& output : {Argument{"loss", loss}, Argument{"logsumexp", logsumexp}}) {
    check_rows(op, output, logits);
    check_apart(op, output, {"logits", logits});
    check_apart(op, output, {"targets", targets});
  }
  check_apart(op, {"loss", loss}, {"logsumexp", logsumexp});
  run_on<cpu::cross_entropy_forward, cuda::cross_entropy_forward>(
      logits.device(), op, loss, logsumexp, logits, targets, ignore_index);
}

void cross_entropy_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& logsumexp, const Tensor& targets, int ignore_index) {
  constexpr std::string_view op = "cross_entropy_backward";
  check_on_one_device(op, {{"dlogits", dlogits},
                           {"dloss", dloss},
                           {"logits", logits},
                           {"logsumexp", logsumexp},
                           {"targets", targets}});
  check_logits_and_targets(op, logits, targets);
  check_same_dtype(op, {"dlogits", dlogits}, {"logits", logits});
  check_same_shape(op, {"dlogits", dlogits}, {"logits", logits});
  check_same_or_apart(op, {"dlogits", dlogits}, {"logits", logits});
  for (const Argument& input : {Argument{"dloss", dloss}, Argument{"logsumexp", logsumexp}}) {
    check_rows(op, input, logits);
    check_apart(op, {"dlogits", dlogits}, input);
  }
  check_apart(op, {"dlogits", dlogits}, {"targets", targets});
  run_on<cpu::cross_entropy_backward, cuda::cross_entropy_backward>(
      logits.device(), op, dlogits, dloss, logits, logsumexp, targets, ignore_index);
}

}  // namespace tessera
