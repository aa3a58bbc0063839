#include "kernels/fp8/op.h"

#include "kernels/checks.h"
#include "kernels/fp8/grid.h"
#include "runtime/check.h"

namespace tessera {

float largest_of(Fp8Format format) {
  return Fp8Grid::of(format).largest;
}

void fp8_round(Out y, const Tensor& x, Fp8Format format, const Tensor& scale, Out largest) {
  constexpr std::string_view op = "fp8_round";
  check_alike(op, {{"y", y}, {"x", x}});
  check_on_one_device(op, {{"x", x}, {"scale", scale}, {"largest", largest}});
  check_dtype(op, {"x", x}, DType::bf16);
  check_same_or_apart(op, {"y", y}, {"x", x});
  for (const Argument& number : {Argument{"scale", scale}, Argument{"largest", largest}}) {
    check_dtype(op, number, DType::f32);
    check_shape(op, number, {1});
  }
  run_on<cpu::fp8_round, cuda::fp8_round>(y.device(), op, y, x, format, scale, largest);
}

void fp8_next_scales(Out scales, Out history, Out largest, Out excess, const Tensor& limits) {
  constexpr std::string_view op = "fp8_next_scales";
  check_rank(op, {"limits", limits}, 1);
  check_rank(op, {"history", history}, 2);
  const std::int64_t count = limits.numel();
  for (const Argument& tensor : {Argument{"scales", scales}, Argument{"largest", largest},
                                 Argument{"excess", excess}, Argument{"limits", limits}}) {
    check_on_one_device(op, {{"history", history}, tensor});
    check_dtype(op, tensor, DType::f32);
    check_shape(op, tensor, {count});
  }
  check_dtype(op, {"history", history}, DType::f32);
  check_shape(op, {"history", history}, {history.size(0), count});
  check(history.size(0) > 0, "{}: a history of no steps", op);
  run_on<cpu::fp8_next_scales, cuda::fp8_next_scales>(scales.device(), op, scales, history, largest,
                                                      excess, limits);
}

}  // namespace tessera
