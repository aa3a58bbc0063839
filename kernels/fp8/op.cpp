#include "kernels/fp8/op.h"

#include "kernels/checks.h"
#include "kernels/fp8/grid.h"
#include "runtime/check.h"
#include "runtime/integer.h"

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

/// A matrix of 8-bit numbers, or equal matrices one after another, and their inverse scales.
void check_blocks(std::string_view op, const Argument& y, const Argument& inverse,
                  Fp8Blocks blocks) {
  check_fp8(op, y);
  check_on_one_device(op, {y, inverse});
  check_dtype(op, inverse, DType::f32);
  const Tensor& t = y.tensor;
  Shape scales = fp8_scales_shape(blocks, t.size(-2), t.size(-1));
  if (t.rank() == 3) scales = {t.size(0), scales[0], scales[1]};
  check_shape(op, inverse, scales);
}

}  // namespace

Shape fp8_scales_shape(Fp8Blocks blocks, std::int64_t rows, std::int64_t depth) {
  const std::int64_t across = ceil_div(depth, kFp8Block);
  if (blocks == Fp8Blocks::vectors) return {across, rows};
  return {ceil_div(rows, kFp8Block), ceil_div(across, 4) * 4};
}

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

void fp8_quantize_blocks(Out y, Out inverse, Out yt, Out inverse_t, const Tensor& x,
                         Fp8Blocks blocks) {
  constexpr std::string_view op = "fp8_quantize_blocks";
  check(y.defined() || yt.defined(), "{}: y and yt are undefined; one of them is written", op);
  check_dtype(op, {"x", x}, DType::bf16);
  check_rank(op, {"x", x}, 2);
  const std::int64_t N = x.size(0), C = x.size(1);
  if (y.defined()) {
    check_pair(op, {"y", y}, {"x", x});
    check_blocks(op, {"y", y}, {"inverse", inverse}, blocks);
  }
  if (yt.defined()) {
    const std::int64_t parts = yt.rank() == 3 && blocks == Fp8Blocks::vectors ? yt.size(0) : 1;
    check(parts > 0 && N % parts == 0, "{}: yt has {} parts, and x has {} rows", op, parts, N);
    check_shape(op, {"yt", yt}, yt.rank() == 3 ? Shape{parts, C, N / parts} : Shape{C, N});
    check_on_one_device(op, {{"yt", yt}, {"x", x}});
    check_apart(op, {"yt", yt}, {"x", x});
    check_blocks(op, {"yt", yt}, {"inverse_t", inverse_t}, blocks);
  }
  if (y.defined() && yt.defined()) {
    check_same_dtype(op, {"yt", yt}, {"y", y});
    check_apart(op, {"yt", yt}, {"y", y});
  }
  run_on<cpu::fp8_quantize_blocks, cuda::fp8_quantize_blocks>(x.device(), op, y, inverse, yt,
                                                              inverse_t, x, blocks);
}

void fp8_expand_blocks(Out x, const Tensor& y, const Tensor& inverse, Fp8Blocks blocks,
                       Transpose transposed) {
  constexpr std::string_view op = "fp8_expand_blocks";
  check_pair(op, {"y", y}, {"x", x});
  check_dtype(op, {"x", x}, DType::bf16);
  check_rank(op, {"y", y}, 2);
  check_on_one_device(op, {{"y", y}, {"inverse", inverse}});
  check_dtype(op, {"inverse", inverse}, DType::f32);
  const bool is_transposed = transposed == Transpose::yes;
  check_shape(
      op, {"inverse", inverse},
      fp8_scales_shape(blocks, y.size(is_transposed ? 1 : 0), y.size(is_transposed ? 0 : 1)));
  run_on<cpu::fp8_expand_blocks, cuda::fp8_expand_blocks>(x.device(), op, x, y, inverse, blocks,
                                                          transposed);
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
