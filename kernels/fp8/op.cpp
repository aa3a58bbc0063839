#include "kernels/fp8/op.h"

#include "kernels/checks.h"
#include "kernels/fp8/grid.h"
#include "runtime/check.h"

namespace tessera {
namespace {

void check_fp8(std::string_view op, const Argument& y) {
  check(is_fp8(y.tensor.dtype()), "{}: {} is {}; it must be e4m3 or e5m2", op, y.name,
        name_of(y.tensor.dtype()));
}

/// One number on x's device.
void check_number(std::string_view op, const Argument& x, const Argument& number) {
  check_on_one_device(op, {x, number});
  check_dtype(op, number, DType::f32);
  check_shape(op, number, {1});
}

void check_pair(std::string_view op, const Argument& y, const Argument& x) {
  check_on_one_device(op, {y, x});
  check_fp8(op, y);
  check_same_shape(op, y, x);
  check_apart(op, y, x);
}

/// yt is y [N, C] transposed.
void check_transposed(std::string_view op, const Argument& yt, const Argument& y) {
  check_on_one_device(op, {yt, y});
  check_fp8(op, yt);
  check_rank(op, y, 2);
  check_shape(op, yt, {y.tensor.size(1), y.tensor.size(0)});
  check_apart(op, yt, y);
}

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

float largest_of(DType format) {
  return Fp8Grid::of(format).largest;
}

void fp8_quantize(Out y, Out yt, const Tensor& x, const Tensor& scale, Out largest) {
  constexpr std::string_view op = "fp8_quantize";
  check(y.defined() || yt.defined(), "{}: y and yt are undefined; one of them is written", op);
  if (y.defined()) check_pair(op, {"y", y}, {"x", x});
  if (yt.defined()) check_transposed(op, {"yt", yt}, {"x", x});
  if (y.defined() && yt.defined()) {
    check_same_dtype(op, {"yt", yt}, {"y", y});
    check_apart(op, {"yt", yt}, {"y", y});
  }
  check_number(op, {"x", x}, {"scale", scale});
  check(x.dtype() == DType::bf16 || x.dtype() == DType::f32, "{}: x is {}; it must be bf16 or f32",
        op, name_of(x.dtype()));
  check_number(op, {"x", x}, {"largest", largest});
  run_on<cpu::fp8_quantize, cuda::fp8_quantize>(x.device(), op, y, yt, x, scale, largest);
}

void fp8_expand(Out x, const Tensor& y, const Tensor& inverse) {
  constexpr std::string_view op = "fp8_expand";
  check_pair(op, {"y", y}, {"x", x});
  check_number(op, {"x", x}, {"inverse", inverse});
  check_dtype(op, {"x", x}, DType::bf16);
  run_on<cpu::fp8_expand, cuda::fp8_expand>(x.device(), op, x, y, inverse);
}

void fp8_transpose(Out yt, const Tensor& y) {
  constexpr std::string_view op = "fp8_transpose";
  check_transposed(op, {"yt", yt}, {"y", y});
  check_same_dtype(op, {"yt", yt}, {"y", y});
  run_on<cpu::fp8_transpose, cuda::fp8_transpose>(y.device(), op, yt, y);
}

void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits) {
  constexpr std::string_view op = "fp8_record";
  check_history(op, history,
                {{"largest", largest}, {"excess", excess}, {"scales", scales}, {"limits", limits}});
  run_on<cpu::fp8_record, cuda::fp8_record>(history.device(), op, history, largest, excess, scales,
                                            limits);
}

void fp8_scales(Out scales, Out inverses, const Tensor& history, const Tensor& limits) {
  constexpr std::string_view op = "fp8_scales";
  check_history(op, history, {{"scales", scales}, {"inverses", inverses}, {"limits", limits}});
  run_on<cpu::fp8_scales, cuda::fp8_scales>(history.device(), op, scales, inverses, history,
                                            limits);
}

}  // namespace tessera
