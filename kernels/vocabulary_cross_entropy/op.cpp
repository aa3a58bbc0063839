#include "kernels/vocabulary_cross_entropy/op.h"

#include <bit>
#include <string_view>

#include "kernels/checks.h"
#include "kernels/cross_entropy/targets.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

void check_logits(std::string_view op, const Tensor& logits, const Targets& targets,
                  std::int64_t first_class) {
  check_floating(op, {"logits", logits});
  check_rank(op, {"logits", logits}, 2);
  check_targets(op, targets, logits.size(0));
  check(first_class >= 0, "{}: first_class is {}; it must not be negative", op, first_class);
}

void check_combined(std::string_view op, const Tensor& combined, const Targets& targets) {
  check_targets(op, targets, targets.rows());
  check_shape(op, {"combined", combined}, {targets.rows(), 3});
}

}  // namespace

void vocabulary_statistics(Out statistics, const Tensor& logits, const Targets& targets,
                           std::int64_t first_class, std::int64_t parts, int ignore_index) {
  constexpr std::string_view op = "vocabulary_statistics";
  check_on_one_device(
      op, {{"statistics", statistics}, {"logits", logits}, {"targets", targets.classes}});
  check_logits(op, logits, targets, first_class);
  check(parts >= 1 && logits.size(1) >= parts && logits.size(1) % parts == 0,
        "{}: logits is {}; its classes cannot be cut into {} equal parts", op, describe(logits),
        parts);
  check_dtype(op, {"statistics", statistics}, statistics_dtype(logits.dtype()));
  check_shape(op, {"statistics", statistics}, {parts, logits.size(0), 3});
  check_apart(op, {"statistics", statistics}, {"logits", logits});
  check_apart(op, {"statistics", statistics}, {"targets", targets.classes});
  run_on<cpu::vocabulary_statistics, cuda::vocabulary_statistics>(
      logits.device(), op, statistics, logits, targets, first_class, parts, ignore_index);
}

void combine_statistics(Out combined, const Tensor& statistics) {
  constexpr std::string_view op = "combine_statistics";
  check_on_one_device(op, {{"combined", combined}, {"statistics", statistics}});
  check_rank(op, {"statistics", statistics}, 3);
  check(statistics.size(2) == 3 &&
            std::has_single_bit(static_cast<std::uint64_t>(statistics.size(0))),
        "{}: statistics is {}; it must be [P, N, 3], with P a power of two", op,
        describe(statistics));
  check(statistics.dtype() == DType::f32 || statistics.dtype() == DType::f64,
        "{}: statistics is {}; it must be f32 or f64", op, describe(statistics));
  check_same_dtype(op, {"combined", combined}, {"statistics", statistics});
  check_shape(op, {"combined", combined}, {statistics.size(1), 3});
  check_apart(op, {"combined", combined}, {"statistics", statistics});
  run_on<cpu::combine_statistics, cuda::combine_statistics>(combined.device(), op, combined,
                                                            statistics);
}

void vocabulary_loss(Out loss, const Tensor& combined, const Targets& targets, double loss_scale,
                     int ignore_index) {
  constexpr std::string_view op = "vocabulary_loss";
  check_on_one_device(op, {{"loss", loss}, {"combined", combined}, {"targets", targets.classes}});
  check_combined(op, combined, targets);
  check(combined.dtype() == DType::f32 || combined.dtype() == DType::f64,
        "{}: combined is {}; it must be f32 or f64", op, describe(combined));
  check_same_dtype(op, {"loss", loss}, {"combined", combined});
  if (loss.shape() != Shape{targets.rows()}) check_shape(op, {"loss", loss}, {1});
  check_apart(op, {"loss", loss}, {"combined", combined});
  run_on<cpu::vocabulary_loss, cuda::vocabulary_loss>(loss.device(), op, loss, combined, targets,
                                                      loss_scale, ignore_index);
}

void vocabulary_gradient(Out dlogits, const Tensor& logits, const Tensor& combined,
                         const Targets& targets, std::int64_t first_class, double loss_scale,
                         int ignore_index, const Tensor& factors) {
  constexpr std::string_view op = "vocabulary_gradient";
  check_on_one_device(op, {{"dlogits", dlogits},
                           {"logits", logits},
                           {"combined", combined},
                           {"targets", targets.classes}});
  check_logits(op, logits, targets, first_class);
  check_combined(op, combined, targets);
  check_dtype(op, {"combined", combined}, statistics_dtype(logits.dtype()));
  if (factors.defined()) {
    check_same_dtype(op, {"factors", factors}, {"combined", combined});
    check_shape(op, {"factors", factors}, {targets.rows()});
    check_apart(op, {"dlogits", dlogits}, {"factors", factors});
  }
  check_same_shape(op, {"dlogits", dlogits}, {"logits", logits});
  const bool rounds = dlogits.dtype() == DType::bf16 && logits.dtype() == DType::f32;
  if (rounds) {
    check_apart(op, {"dlogits", dlogits}, {"logits", logits});
  } else {
    check_same_dtype(op, {"dlogits", dlogits}, {"logits", logits});
    check_same_or_apart(op, {"dlogits", dlogits}, {"logits", logits});
  }
  check_apart(op, {"dlogits", dlogits}, {"combined", combined});
  check_apart(op, {"dlogits", dlogits}, {"targets", targets.classes});
  run_on<cpu::vocabulary_gradient, cuda::vocabulary_gradient>(logits.device(), op, dlogits, logits,
                                                              combined, targets, first_class,
                                                              loss_scale, ignore_index, factors);
}

}  // namespace tessera
