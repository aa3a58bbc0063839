#include "kernels/fp8/op.h"

#include "kernels/checks.h"
#include "kernels/fp8/grid.h"

namespace tessera {
namespace {

/// The history, and tensors with a number for each of its columns.
void check_history(std::string_view op, const Tensor& history,
                   std::initializer_list<Argument> columns) {
  check_dtype(op, {"history", history}, DType::f32);
  check_rank(op, {"history", history}, 2);
  for (const Argument& column : columns) {
    check_on_one_device(op, {{"history", history}, column});
    check_dtype(op, column, DType::f32);
    check_shape(op, column, {history.size(1)});
  }
}

}  // namespace

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

void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits) {
  constexpr std::string_view op = "fp8_record";
  check_history(op, history,
                {{"largest", largest}, {"excess", excess}, {"scales", scales}, {"limits", limits}});
  run_on<cpu::fp8_record, cuda::fp8_record>(history.device(), op, history, largest, excess, scales,
                                            limits);
}

void fp8_scales(Out scales, const Tensor& history, const Tensor& limits) {
  constexpr std::string_view op = "fp8_scales";
  check_history(op, history, {{"scales", scales}, {"limits", limits}});
  run_on<cpu::fp8_scales, cuda::fp8_scales>(history.device(), op, scales, history, limits);
}

}  // namespace tessera
