#include "kernels/cross_entropy/op.h"

#include <string_view>

#include "kernels/checks.h"
#include "kernels/cross_entropy/targets.h"
#include "runtime/check.h"

namespace tessera {
namespace {

void check_rows(std::string_view op, const Argument& rows, const Tensor& logits) {
  check_dtype(op, rows, statistics_dtype(logits.dtype()));
  check_shape(op, rows, {logits.size(0)});
}

void check_logits_and_targets(std::string_view op, const Tensor& logits, const Targets& targets) {
  check_floating(op, {"logits", logits});
  check_rank(op, {"logits", logits}, 2);
  check_targets(op, targets, logits.size(0));
}

}  // namespace

void check_targets(std::string_view op, const Targets& targets, std::int64_t rows) {
  const Tensor& classes = targets.classes;
  check_dtype(op, {"targets", classes}, DType::i32);
  if (!targets.weights.defined()) return check_shape(op, {"targets", classes}, {rows});
  check_rank(op, {"targets", classes}, 2);
  check_on_one_device(op, {{"targets", classes}, {"weights", targets.weights}});
  check_shape(op, {"targets", classes}, {rows, targets.each()});
  check(1 <= targets.each() && targets.each() <= kMostTargets,
        "{}: {} targets in a row; it has 1 to {}", op, targets.each(), kMostTargets);
  check_dtype(op, {"weights", targets.weights}, DType::f32);
  check_same_shape(op, {"weights", targets.weights}, {"targets", classes});
}

void cross_entropy_forward(Out loss, Out logsumexp, const Tensor& logits, const Targets& targets,
                           int ignore_index) {
  constexpr std::string_view op = "cross_entropy_forward";
  check_on_one_device(
      op,
      {{"loss", loss}, {"logsumexp", logsumexp}, {"logits", logits}, {"targets", targets.classes}});
  check_logits_and_targets(op, logits, targets);
  for (const Argument& output : {Argument{"loss", loss}, Argument{"logsumexp", logsumexp}}) {
    check_rows(op, output, logits);
    check_apart(op, output, {"logits", logits});
    check_apart(op, output, {"targets", targets.classes});
  }
  check_apart(op, {"loss", loss}, {"logsumexp", logsumexp});
  run_on<cpu::cross_entropy_forward, cuda::cross_entropy_forward>(
      logits.device(), op, loss, logsumexp, logits, targets, ignore_index);
}

void cross_entropy_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& logsumexp, const Targets& targets, int ignore_index) {
  constexpr std::string_view op = "cross_entropy_backward";
  check_on_one_device(op, {{"dlogits", dlogits},
                           {"dloss", dloss},
                           {"logits", logits},
                           {"logsumexp", logsumexp},
                           {"targets", targets.classes}});
  check_logits_and_targets(op, logits, targets);
  check_same_dtype(op, {"dlogits", dlogits}, {"logits", logits});
  check_same_shape(op, {"dlogits", dlogits}, {"logits", logits});
  check_same_or_apart(op, {"dlogits", dlogits}, {"logits", logits});
  for (const Argument& input : {Argument{"dloss", dloss}, Argument{"logsumexp", logsumexp}}) {
    check_rows(op, input, logits);
    check_apart(op, {"dlogits", dlogits}, input);
  }
  check_apart(op, {"dlogits", dlogits}, {"targets", targets.classes});
  run_on<cpu::cross_entropy_backward, cuda::cross_entropy_backward>(
      logits.device(), op, dlogits, dloss, logits, logsumexp, targets, ignore_index);
}

}  // namespace tessera
