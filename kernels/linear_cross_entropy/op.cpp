#include "kernels/linear_cross_entropy/op.h"

#include <string_view>

#include "kernels/checks.h"
#include "kernels/cross_entropy/targets.h"
#include "kernels/linear_cross_entropy/options.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

constexpr std::string_view kOp = "linear_cross_entropy";

/// Outputs of rows, and the factors that need them.
void check_losses(const Tensor& loss, const Tensor& x, const Tensor& factors) {
  const bool by_rows = loss.shape() == Shape{x.size(0)};
  check_dtype(kOp, {"loss", loss}, statistics_dtype(x.dtype()));
  if (!by_rows) check_shape(kOp, {"loss", loss}, {1});
  if (!factors.defined()) return;
  check(by_rows, "{}: loss is {} and there are factors; it needs one number for each row", kOp,
        describe(loss));
  check_alike(kOp, {{"factors", factors}, {"loss", loss}});
  check_apart(kOp, {"loss", loss}, {"factors", factors});
}

void check_arguments(const Tensor& loss, const Tensor& dx, const Tensor& dweight, const Tensor& x,
                     const Tensor& weight, const Targets& targets, std::int64_t chunk) {
  check_on_one_device(kOp,
                      {{"loss", loss}, {"x", x}, {"weight", weight}, {"targets", targets.classes}});
  check_same_floating(kOp, {{"x", x}, {"weight", weight}});
  check_rank(kOp, {"x", x}, 2);
  check_rank(kOp, {"weight", weight}, 2);
  check(x.size(1) == weight.size(1),
        "{}: x is {} and weight is {}; their last dimensions must be equal", kOp, describe(x),
        describe(weight));
  if (weight.numel() == 0)
    fail("{}: weight is {}; it needs at least one class and one channel", kOp, describe(weight));
  check_targets(kOp, targets, x.size(0));
  check(chunk == kAutomaticChunk || chunk >= 1, "{}: a chunk of {} rows; it needs at least one",
        kOp, chunk);
  if (dx.defined()) {
    check_alike(kOp, {{"dx", dx}, {"x", x}});
    check_apart(kOp, {"dx", dx}, {"x", x});
    check_apart(kOp, {"dx", dx}, {"weight", weight});
  }
  if (dweight.defined()) {
    check_on_one_device(kOp, {{"dweight", dweight}, {"weight", weight}});
    check_same_dtype_or_f32(kOp, {"dweight", dweight}, {"weight", weight});
    check_same_shape(kOp, {"dweight", dweight}, {"weight", weight});
    check_apart(kOp, {"dweight", dweight}, {"x", x});
    check_apart(kOp, {"dweight", dweight}, {"weight", weight});
  }
}

}  // namespace

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Targets& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index, std::int64_t chunk, const Tensor& factors) {
  check_arguments(loss, dx, dweight, x, weight, targets, chunk);
  check_losses(loss, x, factors);
  run_on<cpu::linear_cross_entropy, cuda::linear_cross_entropy>(
      x.device(), kOp, loss, dx, dweight, x, weight, targets, loss_scale, accumulate_dweight,
      ignore_index, rows_of_chunk(chunk, x.device()), factors);
}

}  // namespace tessera
