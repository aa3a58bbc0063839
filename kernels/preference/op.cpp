#include "kernels/preference/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {

void preference_loss(Out sums, Out factors, Out sequences, const Tensor& losses,
                     const Tensor& targets, const Tensor& starts, const Tensor& reference,
                     const PreferenceLoss& options, double scale) {
  constexpr std::string_view op = "preference_loss";
  check_on_one_device(op, {{"sums", sums},
                           {"losses", losses},
                           {"targets", targets},
                           {"starts", starts},
                           {"reference", reference}});
  check_rank(op, {"losses", losses}, 2);
  check(losses.dtype() == DType::f32 || losses.dtype() == DType::f64,
        "{}: losses is {}; it must be f32 or f64", op, name_of(losses.dtype()));
  check_alike(op, {{"losses", losses}, {"reference", reference}});
  for (const Argument& ids : {Argument{"targets", targets}, Argument{"starts", starts}}) {
    check_dtype(op, ids, DType::i32);
    check_same_shape(op, ids, {"losses", losses});
  }
  check_same_dtype(op, {"sums", sums}, {"losses", losses});
  check_shape(op, {"sums", sums}, {kPreferenceSums});
  for (const Argument& output : {Argument{"factors", factors}, Argument{"sequences", sequences}}) {
    if (!output.tensor.defined()) continue;
    check_alike(op, {output, {"losses", losses}});
    check_apart(op, output, {"losses", losses});
    check_apart(op, output, {"reference", reference});
  }
  run_on<cpu::preference_loss, cuda::preference_loss>(losses.device(), op, sums, factors, sequences,
                                                      losses, targets, starts, reference, options,
                                                      scale);
}

}  // namespace tessera
